"""Layer inputs and gradients of any torch module, from its own data, and files of them."""
