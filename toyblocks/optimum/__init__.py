"""The least attention cost of a pattern, as a convex program, certified from both sides."""

from toyblocks.optimum.program import Component as Component
from toyblocks.optimum.program import Program as Program
from toyblocks.optimum.reduce import program_of as program_of
from toyblocks.optimum.reduce import token_program as token_program
from toyblocks.optimum.solve import METHODS as METHODS
from toyblocks.optimum.solve import Optimum as Optimum
from toyblocks.optimum.solve import optimum as optimum
from toyblocks.optimum.solve import solve as solve
