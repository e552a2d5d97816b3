package httpapi

import (
	"net/http"

	"ronbox/engines/ledger"
	"ronbox/httpapi/wire"
)

const rootsPage = 100 // headers, if nobody says how many

// getRoots serves GET /v1/ledger/roots.
func getRoots(l LedgerReader) handler {
	return func(c *call) error {
		since, err := c.number("since", 0, maxVersion)
		if err != nil {
			return err
		}
		limit, err := c.number("limit", rootsPage, ledger.MaxRoots)
		if err != nil {
			return err
		}
		all, err := l.Roots(c.context(), c.actor, since, int(limit))
		if err != nil {
			return err
		}
		out := wire.Roots{Roots: make([]wire.Root, len(all))}
		for i := range all {
			b := &all[i]
			out.Roots[i] = wire.Root{Batch: b.No, Seq: b.Last(), Root: b.Root().String(), TS: instant(b.At)}
		}
		if len(all) == int(limit) {
			out.Next = all[len(all)-1].No
		}
		return respond(c, http.StatusOK, out)
	}
}

// getLedgerHead serves GET /v1/ledger/head.
func getLedgerHead(l LedgerReader) handler {
	return func(c *call) error {
		h, err := l.Head(c.context(), c.actor)
		if err != nil {
			return err
		}
		return respond(c, http.StatusOK, wire.LedgerHead{
			Batches: h.Batches, LogRoot: h.Root.String(), LastRoot: h.LastRoot.String(), Seq: h.Seq,
		})
	}
}

// getProof serves GET /v1/tx/:txid/proof.
func getProof(l LedgerReader) handler {
	return func(c *call) error {
		at, err := c.number("at", 0, maxVersion)
		if err != nil {
			return err
		}
		p, err := l.Proof(c.context(), c.actor, c.tx(), at)
		if err != nil {
			return err
		}
		return respond(c, http.StatusOK, &p)
	}
}

// getConsistency serves GET /v1/ledger/consistency.
func getConsistency(l LedgerReader) handler {
	return func(c *call) error {
		from, err := c.required("from", maxVersion)
		if err != nil {
			return err
		}
		to, err := c.required("to", maxVersion)
		switch {
		case err != nil:
			return err
		case to < from:
			return &QueryError{"to", "must not be before from"}
		}
		p, err := l.Consistency(c.context(), c.actor, from, to)
		if err != nil {
			return err
		}
		return respond(c, http.StatusOK, &p)
	}
}
