from .scorer import ClipScorer as ClipScorer
from .scorer import load_scorer as load_scorer
from .settings import ClipSettings as ClipSettings
from .settings import HeadSettings as HeadSettings
from .settings import PrescreenSettings as PrescreenSettings
from .stream import score_shards as score_shards
from .stream import score_table as score_table
