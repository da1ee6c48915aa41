"""The bot's metrics, for Prometheus. No label identifies a person."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dibs.integrations.prometheus import PrometheusListener

_QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0)


class Metrics:
    """All metrics, in their own registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.dibs = PrometheusListener(registry)
        """The metrics of dibs itself: the alerts of deploy/alerts.yml use them."""

        # ---- the processing lock: the seeds' names
        self.lock_acquire = Counter(
            "processing_lock_acquire",
            "Attempts: acquired, busy, unguarded (the store was out), no_user (no id to lock by).",
            ["status", "source_type"],
            registry=registry,
        )
        self.lock_miss = Counter(
            "processing_lock_miss", "Attempts that met a lock.", registry=registry
        )
        self.lock_release = Counter(
            "processing_lock_release", "Locks given back in time.", registry=registry
        )
        self.lock_release_late = Counter(
            "processing_lock_release_late",
            "Locks that had run out, or could not be given back at once.",
            registry=registry,
        )
        self.lock_held = Histogram(
            "processing_lock_held_seconds",
            "How long locks were held.",
            buckets=_QUICK,
            registry=registry,
        )
        self.duration = Histogram(
            "processing_duration_seconds",
            "From the beginning of the work on an event to its end.",
            ["event_type"],
            buckets=_QUICK,
            registry=registry,
        )

        # ---- webhooks and events
        self.webhooks = Counter(
            "line_webhook", "Calls of the webhook by status.", ["status"], registry=registry
        )
        self.events = Counter(
            "line_events",
            "Events: done, failed, late (took too long), cut (by the end of the process),"
            " kept (to be answered after the start), expired (kept for too long),"
            " duplicate, standby, ignored, malformed, refused (the queue is full).",
            ["outcome"],
            registry=registry,
        )
        self.deduplicated = Counter(
            "events_deduplicated",
            "Events that were there before: running or done.",
            ["state"],
            registry=registry,
        )
        self.queue = Gauge(
            "line_events_pending", "Events accepted and not done.", registry=registry
        )
        self.running = Gauge("line_events_running", "Events that are worked on.", registry=registry)

        # ---- answers
        self.replies = Counter("line_reply", "Replies by outcome.", ["outcome"], registry=registry)
        self.pushes = Counter(
            "line_push", "Pushes in place of replies.", ["outcome"], registry=registry
        )
        self.loading = Counter(
            "line_loading", "Loading animations by outcome.", ["outcome"], registry=registry
        )

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return generate_latest(self.registry)


metrics = Metrics()
"""The metrics of this process."""
