"""What a region costs when its loops run with one tile or another, and which plans go together. Analysis only."""
