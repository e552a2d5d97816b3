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
	"ronbox/httpapi/openapi"
	registryapi "ronbox/httpapi/wire/registry"
)

const maxCheckpointPage = 100

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
	before, err := c.Number("before", 0, 1, httpapi.MaxNumber)
	limit, errLimit := c.Number("limit", maxCheckpointPage, 1, maxCheckpointPage)
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

// proof returns the handler of a proof about two numbers. The first is required, the second is 0 if
// it is absent.
func proof[T any](first, second string, prove func(ctx context.Context, a, b uint64) (T, error)) httpapi.Handler {
	return func(c *httpapi.Request) error {
		a, err := c.RequiredNumber(first, httpapi.MaxNumber)
		b, errB := c.Number(second, 0, 1, httpapi.MaxNumber)
		if err := cmp.Or(err, errB); err != nil {
			return err
		}
		p, err := prove(c.Context(), a, b)
		return answer(c, p, err)
	}
}

func (h handlers) getItem(c *httpapi.Request) error {
	if !c.Query().Has("id") {
		return httpapi.BadQuery("id", "is missing")
	}
	p, err := h.reg.ItemProof(c.Context(), c.NumberParam(paramVersion), c.Query().Get("id"))
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
			Query: []openapi.Param{
				openapi.Number("before", "sizes below this one", httpapi.MaxNumber),
				openapi.Number("limit", "checkpoints of a page", maxCheckpointPage),
			},
		},
		httpapi.Route{
			Pattern: "proof/inclusion",
			Handle:  proof("version", "size", h.reg.Inclusion),
			ID:      "proveRegistryVersion",
			Summary: "Proof that a version is in the log",
			Answers: ok(registryapi.InclusionProof{}),
			Query: []openapi.Param{
				required("version", "the version", 1),
				openapi.Number("size", "size of the log; by default that of the latest checkpoint", httpapi.MaxNumber),
			},
		},
		httpapi.Route{
			Pattern: "proof/consistency",
			Handle:  proof("from", "to", h.reg.Consistency),
			ID:      "proveRegistryConsistency",
			Summary: "Proof that the log has only grown",
			Answers: ok(registryapi.ConsistencyProof{}),
			Query: []openapi.Param{
				required("from", "the smaller size", 1),
				openapi.Number("to", "the larger size; by default that of the latest checkpoint", httpapi.MaxNumber),
			},
		},
		httpapi.Route{
			Pattern: ":v/item",
			Handle:  h.getItem,
			ID:      "getRegistryItem",
			Summary: "One descriptor of a version, with a proof of presence or absence",
			Answers: ok(registryapi.ItemProof{}),
			Query:   []openapi.Param{{Name: "id", Doc: "of the descriptor", Required: true}},
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
			Query: []openapi.Param{
				openapi.Number("from", "sequence number of the first record; by default 1", httpapi.MaxNumber),
				openapi.Number("limit", "records of a page", maxAuditPage),
			},
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
