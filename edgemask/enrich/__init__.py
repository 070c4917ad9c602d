"""Enrichment (section 4.1): original ∪ kNN ∪ spectral edges, every edge with its origin."""

from edgemask.enrich.cache import Cache, default_cache
from edgemask.enrich.knn import EnrichWarning, knn
from edgemask.enrich.sample import EdgeSample, EnrichedGraph, Origin, Sampler, enrich
from edgemask.enrich.spectral import spectral_clusters

__all__ = [
    "Cache",
    "EdgeSample",
    "EnrichWarning",
    "EnrichedGraph",
    "Origin",
    "Sampler",
    "default_cache",
    "enrich",
    "knn",
    "spectral_clusters",
]
