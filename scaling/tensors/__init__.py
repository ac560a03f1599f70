"""What a file holds of a model's attention layers: queries, keys and values of every head, and what they were made from.

 file -> archive (names, arrays) -> read (layers by name) -> layer (one layer, checked)
"""

from scaling.tensors.layer import ACTIVATIONS as ACTIVATIONS
from scaling.tensors.layer import Layer as Layer
from scaling.tensors.read import Tensors as Tensors
from scaling.tensors.read import read_tensors as read_tensors
