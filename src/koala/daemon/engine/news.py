"""Which reports of sites are worth a place in the journal: those from which the core learns something."""

from __future__ import annotations

from koala.core.state.job import ComponentPhase
from koala.core.state.ledger import Ledger
from koala.model.messages import (
    AnyEvent,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    ComponentStarting,
    TransferEnded,
)


def is_news(event: AnyEvent, ledger: Ledger) -> bool:
    """False for what the core would pass over: sites repeat themselves when asked, and answer for what is over."""
    match event:
        case ComponentRunning():
            return False
        case ComponentAccepted():
            claim = ledger.claims.get(event.token)
            return claim is not None and claim.phase is ComponentPhase.SENT
        case ComponentStarting():
            claim = ledger.claims.get(event.token)
            return claim is not None and not claim.aborting and claim.timer is not None
        case ComponentReady():
            claim = ledger.claims.get(event.token)
            return claim is not None and not claim.aborting and claim.phase is not ComponentPhase.READY
        case ComponentEnded():
            return event.token in ledger.claims
        case TransferEnded():
            transfer = ledger.transfers.by_id.get(event.transfer)
            return transfer is not None and not transfer.done
    return True
