"""The client's weight refit. Nothing is imported before it is asked for: no CUDA, NIXL or gRPC is needed for it."""
