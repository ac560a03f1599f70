"""Theory and simulation beside each other: every statement, what it predicts, what is measured, and whether they agree."""

from scaling.verify.check import Check as Check
from scaling.verify.check import Constants as Constants
from scaling.verify.check import Setup as Setup
from scaling.verify.runner import STATEMENTS as STATEMENTS
from scaling.verify.runner import Report as Report
from scaling.verify.runner import run as run
