"""What a merged model gains or loses where its weights are put back to pretrained: measured, and to first order."""
