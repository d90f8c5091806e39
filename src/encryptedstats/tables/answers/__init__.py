"""What tables answer: encrypted and decrypted answers, their files, and the predictions and results
that are made of them.
"""
