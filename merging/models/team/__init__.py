"""Teams: a pretrained model and its experts with their tensors under shared names.

Experts of networks other than CLIP often differ from the pretrained model in names, heads or vocabularies. Forming a
team resolves these differences, or lists them.
"""
