"""A team of networks other than CLIP: how differences between experts and their pretrained model are resolved."""
