"""A team of networks other than CLIP: what differs between experts and their pretrained model, and what is done."""
