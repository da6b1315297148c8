"""Checkpoints on disk: read as plain data or refused in one sentence, written whole or not at all."""
