"""Train on the airports of the USA and Brazil, predict those of Europe, and see what can be trusted.

The classes are quartiles of activity, and the features are made from the degrees. The data is read from $EDGEMASK_DATA
or downloaded. The whole race takes a minute or two on two cores; a budget makes it shorter.
"""

import sys

from edgemask import EdgeMaskClassifier, benchmark

graphs = benchmark("airports").load(features="degree")
model = EdgeMaskClassifier(metric="accuracy", budget=sys.argv[1] if len(sys.argv) > 1 else "5m")
model.fit([graphs["usa"], graphs["brazil"]])

print(model.leaderboard_[["candidate", "score", "error", "weight"]].head(5))
print("expected", model.expected_)
europe = graphs["europe"]
print(f"accuracy {model.score(europe):.2f}")
print(model.compare(europe)[["aspect", "outside", "message"]])  # how it differs from the sources
