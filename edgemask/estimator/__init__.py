"""`EdgeMaskClassifier`: a scikit-learn style estimator that is fitted on source graphs and predicts unseen graphs."""

from edgemask.estimator.classifier import EdgeMaskClassifier, NotFittedError
from edgemask.estimator.fitting import STAR
from edgemask.estimator.parameters import AUTO, HYPER, OWN, PARAMETERS, SETTINGS

__all__ = ["AUTO", "HYPER", "OWN", "PARAMETERS", "SETTINGS", "STAR", "EdgeMaskClassifier", "NotFittedError"]
