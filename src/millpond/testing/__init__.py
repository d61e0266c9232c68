"""What users' tests may import: real servers, cloned databases."""
