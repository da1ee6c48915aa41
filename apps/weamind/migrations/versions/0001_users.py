"""Users, their home and office, and where they asked about last."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create two tables."""
    op.create_table(
        "weamind_users",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("line_user_id", sa.String(255), nullable=False, unique=True),
        sa.Column("home_code", sa.String(8)),
        sa.Column("office_code", sa.String(8)),
        sa.Column("is_active", sa.Boolean, nullable=False),
        sa.Column("active_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "weamind_queries",
        sa.Column(
            "user_id",
            sa.Integer,
            sa.ForeignKey("weamind_users.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("place_code", sa.String(8), primary_key=True),
        sa.Column("asked_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_weamind_queries_asked_at", "weamind_queries", ["asked_at"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("weamind_queries")
    op.drop_table("weamind_users")
