"""Enrichment (section 4.1): original ∪ kNN ∪ spectral edges, where every edge keeps its origin."""

from edgemask.enrich.cache import Cache, Declared, default_cache
from edgemask.enrich.enriched import EnrichedGraph, enrich
from edgemask.enrich.index import approximate_knn, recall
from edgemask.enrich.knn import knn
from edgemask.enrich.sampler import EdgeSample, Origin, Sampler
from edgemask.enrich.spectral import spectral_clusters

__all__ = [
    "Cache",
    "Declared",
    "EdgeSample",
    "EnrichedGraph",
    "Origin",
    "Sampler",
    "approximate_knn",
    "default_cache",
    "enrich",
    "knn",
    "recall",
    "spectral_clusters",
]
