"""The checks of tools/tidy, one module a concern. Standard library only; each takes a Tree and returns findings."""
