"""Pictures of hands and objects."""
