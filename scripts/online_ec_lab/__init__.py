"""Online EC's figures 8 to 10 on this machine (`scripts/online-ec-lab`)."""
