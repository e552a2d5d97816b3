package registry

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	checkpoint "ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/logtree"
	record "ronbox/engines/registry/record"
	"ronbox/httpapi"
	registryapi "ronbox/httpapi/wire/registry"
)

const maxCheckpointPage = 100

// Query parameters of checkpoints and proofs.
var (
	checkpointsBefore = httpapi.Number("before", 0, 1, httpapi.MaxNumber, "sizes below this one")
	checkpointsLimit  = httpapi.Number("limit", maxCheckpointPage, 1, maxCheckpointPage, "checkpoints of a page")

	inclusionVersion = httpapi.Number("version", 0, 1, httpapi.MaxNumber, "the version").Required()
	inclusionSize    = httpapi.Number("size", 0, 1, httpapi.MaxNumber,
		"size of the log; by default that of the latest checkpoint")

	consistencyFrom = httpapi.Number("from", 0, 1, httpapi.MaxNumber, "the smaller size").Required()
	consistencyTo   = httpapi.Number("to", 0, 1, httpapi.MaxNumber,
		"the larger size; by default that of the latest checkpoint")

	itemID = httpapi.Text("id", "of the descriptor").Required()
)

// getCheckpoint sends the note, or JSON to a client that asks for it.
func (h handlers) getCheckpoint(c *httpapi.Request) error {
	s, err := h.reg.LatestCheckpoint()
	if err != nil {
		return err
	}
	if strings.Contains(c.HTTP().Header.Get("Accept"), "application/json") {
		return answer(c, checkpointBody(*s), nil)
	}
	return send(c, typeNote, httpapi.CacheAsk, s.Note)
}

// send sends bytes of a type.
func send(c *httpapi.Request, kind, cache string, body []byte) error {
	c.Set("Content-Type", kind)
	c.Set("Cache-Control", cache)
	c.WriteHeader(http.StatusOK)
	_, _ = c.Write(body) // an error means that the client has left
	return nil
}

func (h handlers) getCheckpoints(c *httpapi.Request) error {
	before, err := checkpointsBefore.Of(c)
	limit, errLimit := checkpointsLimit.Of(c)
	if err := cmp.Or(err, errLimit); err != nil {
		return err
	}
	notes, err := h.reg.ArchivedCheckpoints(c.Context(), before, int(limit))
	out := registryapi.CheckpointList{Notes: make([]string, len(notes))}
	for i, n := range notes {
		out.Notes[i] = string(n)
	}
	return answer(c, out, err)
}

// proof returns the handler of a proof about two numbers.
func proof[T any](
	first, second *httpapi.Parameter[uint64], prove func(ctx context.Context, a, b uint64) (T, error),
) httpapi.Handler {
	return func(c *httpapi.Request) error {
		a, err := first.Of(c)
		b, errB := second.Of(c)
		if err := cmp.Or(err, errB); err != nil {
			return err
		}
		p, err := prove(c.Context(), a, b)
		return answer(c, p, err)
	}
}

func (h handlers) getItem(c *httpapi.Request) error {
	id, err := itemID.Of(c)
	if err != nil {
		return err
	}
	p, err := h.reg.ItemProof(c.Context(), c.NumberParam(paramVersion), id)
	if err != nil {
		return err
	}
	return c.RespondCached(http.StatusOK, httpapi.CacheForever, p)
}

func (h handlers) getTile(c *httpapi.Request) error {
	at, width, entries, err := logtree.ParsePath("tile/" + strings.TrimPrefix(c.Param(paramTile), "/"))
	if err != nil {
		return document.ErrNotFound
	}
	raw, err := h.reg.Tile(c.Context(), at, width, entries)
	if err != nil {
		return err
	}
	return send(c, httpapi.TypeBytes, httpapi.CacheForever, raw)
}

func (h handlers) getHorizon(c *httpapi.Request) error {
	out, err := h.reg.Horizon(c.Context())
	return answer(c, out, err)
}

func (h handlers) postCheckpoint(c *httpapi.Request) error {
	made, err := h.reg.CheckpointNow(c.Context())
	return done(c, checkpointBody(made.Signed), err)
}

func (h handlers) getHighWater(c *httpapi.Request) error {
	w, err := h.reg.HighWater(c.Context())
	return done(c, w, err)
}

func (h handlers) postAdopt(c *httpapi.Request) error {
	if err := h.reg.Adopt(c.Context(), c.Actor(), c.CorrID()); err != nil {
		return err
	}
	return h.getHighWater(c)
}

func (h handlers) postCatchUp(c *httpapi.Request) error {
	var in registryapi.CatchUp
	if err := c.Decode(&in); err != nil {
		return err
	}
	if in.From == "" {
		return httpapi.BadBody("from", "is missing")
	}
	caught, err := h.reg.CatchUpFrom(c.Context(), c.Actor(), in.From, c.CorrID())
	return done(c, caught, err)
}

func (h handlers) proofs() []httpapi.Route {
	return httpapi.Routes(
		read,
		httpapi.Route{
			Pattern: "checkpoint",
			Handle:  h.getCheckpoint,
			ID:      "getCheckpoint",
			Summary: "The latest checkpoint; JSON if Accept asks for it",
			Answers: httpapi.AnswersRaw("text/plain", "a C2SP checkpoint, signed by the log key"),
		},
		httpapi.Route{
			Pattern: "checkpoints",
			Handle:  h.getCheckpoints,
			ID:      "listCheckpoints",
			Summary: "Archived checkpoints, newest first",
			Answers: ok(registryapi.CheckpointList{}),
			Query:   httpapi.Params(checkpointsBefore, checkpointsLimit),
		},
		httpapi.Route{
			Pattern: "proof/inclusion",
			Handle:  proof(inclusionVersion, inclusionSize, h.reg.Inclusion),
			ID:      "proveRegistryVersion",
			Summary: "Proof that a version is in the log",
			Answers: ok(registryapi.InclusionProof{}),
			Query:   httpapi.Params(inclusionVersion, inclusionSize),
		},
		httpapi.Route{
			Pattern: "proof/consistency",
			Handle:  proof(consistencyFrom, consistencyTo, h.reg.Consistency),
			ID:      "proveRegistryConsistency",
			Summary: "Proof that the log has only grown",
			Answers: ok(registryapi.ConsistencyProof{}),
			Query:   httpapi.Params(consistencyFrom, consistencyTo),
		},
		httpapi.Route{
			Pattern: ":v/item",
			Handle:  h.getItem,
			ID:      "getRegistryItem",
			Summary: "One descriptor of a version, with a proof of presence or absence",
			Answers: ok(registryapi.ItemProof{}),
			Query:   httpapi.Params(itemID),
		},
		httpapi.Route{
			Pattern: "tile/*path",
			Copy:    httpapi.CopyExact,
			Handle:  h.getTile,
			ID:      "getLogTile",
			Summary: "A tile of the log tree, in the C2SP tlog-tiles layout",
			Answers: httpapi.AnswersRaw(httpapi.TypeBytes, "hashes of 32 bytes, or entries, each after its length"),
		},
		httpapi.Route{
			Pattern: "horizon",
			Handle:  h.getHorizon,
			ID:      "getHorizon",
			Summary: "Where the log begins: what a pruned log has kept of the versions before",
			Answers: ok(registryapi.Horizon{}),
		},
		httpapi.Route{
			Pattern: "audit",
			Handle:  h.getAudit,
			Scope:   service + ".audit",
			ID:      "listDecisions",
			Summary: "The chain of decisions and refusals",
			Answers: ok(registryapi.AuditChain{}),
			Query:   httpapi.Params(auditFrom, auditLimit),
		},
	)
}

func checkpointBody(s checkpoint.Signed) registryapi.Checkpoint {
	out := registryapi.Checkpoint{Origin: s.Origin, Size: s.Size, Root: s.Root.String(), Note: string(s.Note)}
	if !s.At.IsZero() {
		out.At = record.FormatTime(s.At)
	}
	return out
}
