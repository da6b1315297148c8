"""What shares memory: regions, exact overlap, relations, alias groups. Looks, and never writes."""
