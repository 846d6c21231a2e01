"""What users give a run from outside the program: files of layer inputs and gradients."""
