"""Training: blocks that solve a task under a pattern with small weights, by Adam with L2 in the loss."""

from toyblocks.train.run import Trained as Trained
from toyblocks.train.run import train as train
