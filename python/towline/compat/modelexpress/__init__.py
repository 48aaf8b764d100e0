"""The ModelExpress client's modules that move tensors. Importable without gRPC, NIXL, engines or a GPU."""
