package rewarder

import (
	"cmp"
	"io"
	"math"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/httpapi"
)

// PolicyPut is the body of PUT /rewarder/policy/{id}.
type PolicyPut struct {
	Body       jsontext.Value     `json:"body" doc:"the policy, in any spelling: it is stored, hashed and signed in the canonical one"`
	Signatures []record.Signature `json:"signatures" doc:"of the hash"`
}

// UsageRow is one line of a part: what an actor did in a metric, for one content or for none.
type UsageRow struct {
	Actor   string `json:"actor"`
	Content string `json:"content,omitzero" format:"b3"`
	Metric  string `json:"metric"`
	Qty     string `json:"qty" doc:"a decimal string up to 2^64-1"`
}

// handlers serve the routes of the rewarder.
type handlers struct{ rew *rewarder.Engine }

// as makes a handler of one that acts for the caller's tenant. A token that names an epoch opens no other.
func as(serve func(*httpapi.Request, rewarder.Call) error) httpapi.Handler {
	return func(c *httpapi.Request) error {
		by := c.Actor()
		call := rewarder.Call{By: by, Tenant: cmp.Or(by.Tenant, rewarder.DefaultTenant), CorrID: c.CorrID()}
		err := by.Grant.Tenant(call.Tenant)
		if epoch := c.Param(paramEpoch); err == nil && epoch != "" {
			err = by.Grant.Epoch(epoch)
		}
		if err != nil {
			return err
		}
		return serve(c, call)
	}
}

// answer responds with what the engine gave.
func answer(c *httpapi.Request, status int, v any, err error) error {
	if err != nil {
		return err
	}
	return c.Respond(status, v)
}

// answerRun is answer for a run: 202 until it has come to where it is waited for.
func answerRun(c *httpapi.Request, r rewarder.Run, done bool, err error) error {
	status := http.StatusOK
	if !done {
		status = http.StatusAccepted
	}
	return answer(c, status, r, err)
}

// computed reports whether a run has left the state in which it is computed.
func computed(s rewarder.State) bool { return s != rewarder.Accepted }

// digestParam is a path parameter that the router has found to be a digest.
func digestParam(c *httpapi.Request, name string) b3.Digest {
	d, _ := b3.Parse(c.Param(name))
	return d
}

func (h handlers) putPolicy(c *httpapi.Request, call rewarder.Call) error {
	var in PolicyPut
	if err := c.Decode(&in); err != nil {
		return err
	}
	p, err := h.rew.PutPolicy(c.Context(), call, c.Param(paramPolicy), in.Body, in.Signatures)
	if p.Created {
		return answer(c, http.StatusCreated, p, err)
	}
	return answer(c, http.StatusOK, p, err)
}

func (h handlers) getPolicy(c *httpapi.Request, call rewarder.Call) error {
	p, err := h.rew.Policy(c.Context(), call.Tenant, c.Param(paramPolicy))
	return answer(c, http.StatusOK, p, err)
}

func (h handlers) postInput(c *httpapi.Request, call rewarder.Call) error {
	var in rewarder.OpenInput
	if err := c.Decode(&in); err != nil {
		return err
	}
	g := call.By.Grant
	if err := cmp.Or(g.Epoch(in.EpochID), g.Account(in.Account), g.Asset(in.Asset), g.Amount(in.PoolMinor)); err != nil {
		return err
	}
	u, err := h.rew.OpenInput(c.Context(), call, in)
	return answer(c, http.StatusCreated, u, err)
}

// putPart serves a part in one of the two formats.
func (h handlers) putPart(format rewarder.Format) httpapi.Handler {
	return as(func(c *httpapi.Request, call rewarder.Call) error {
		body, err := io.ReadAll(c.Stream()) // bounded by the cap of the route
		if err != nil {
			return err
		}
		n := uint32(min(c.NumberParam(paramPart), math.MaxUint32)) // an upload has fewer
		u, err := h.rew.PutPart(c.Context(), call, digestParam(c, paramUpload), n, format, body)
		return answer(c, http.StatusOK, u, err)
	})
}

func (h handlers) postSeal(c *httpapi.Request, call rewarder.Call) error {
	in, err := h.rew.SealInput(c.Context(), call, digestParam(c, paramUpload))
	return answer(c, http.StatusCreated, in, err)
}

func (h handlers) getInput(c *httpapi.Request, call rewarder.Call) error {
	in, err := h.rew.Input(c.Context(), call.Tenant, digestParam(c, paramInputs))
	return answer(c, http.StatusOK, in, err)
}

func (h handlers) postCompute(c *httpapi.Request, call rewarder.Call) error {
	if err := call.By.Grant.Run(math.MaxUint64); err != nil {
		return err // runs are not counted by token: one that may make only some makes none
	}
	var in rewarder.ComputeRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	in.Deadline = c.CallerDeadline()
	run, err := h.rew.Compute(c.Context(), call, c.Param(paramEpoch), in)
	if err == nil && !computed(run.State) {
		c.Set("Location", prefix+"epochs/"+run.Epoch)
		c.Set("Retry-After", "1")
	}
	return answerRun(c, run, computed(run.State), err)
}

func (h handlers) getEpoch(c *httpapi.Request, call rewarder.Call) error {
	r, err := h.rew.Epoch(c.Context(), call.Tenant, c.Param(paramEpoch))
	return answerRun(c, r, computed(r.State), err)
}

// paged makes a handler of one that reads a page of up to ?limit= rows.
func paged(read func(c *httpapi.Request, call rewarder.Call, limit int) (any, error)) httpapi.Handler {
	return as(func(c *httpapi.Request, call rewarder.Call) error {
		limit, err := c.Number("limit", defaultPage, 1, rewarder.MaxPage)
		if err != nil {
			return err
		}
		page, err := read(c, call, int(limit))
		return answer(c, http.StatusOK, page, err)
	})
}

func (h handlers) getEpochs(c *httpapi.Request, call rewarder.Call, limit int) (any, error) {
	return h.rew.Epochs(c.Context(), call.Tenant, c.Query().Get("after"), limit)
}

func (h handlers) getAllocations(c *httpapi.Request, call rewarder.Call, limit int) (any, error) {
	return h.rew.Allocations(c.Context(), call.Tenant, c.Param(paramEpoch), c.Query().Get("after"), limit)
}

func (h handlers) getSettlement(c *httpapi.Request, call rewarder.Call, limit int) (any, error) {
	from, err := c.Number("from", 0, 0, math.MaxUint32)
	if err != nil {
		return nil, err
	}
	return h.rew.Settlement(c.Context(), call.Tenant, c.Param(paramEpoch), uint32(from), limit)
}

func (h handlers) getProof(c *httpapi.Request, call rewarder.Call) error {
	p, err := h.rew.Proof(c.Context(), call.Tenant, c.Param(paramEpoch), c.Query().Get("actor"))
	return answer(c, http.StatusOK, p, err)
}

func (h handlers) postEmit(c *httpapi.Request, call rewarder.Call) error {
	r, err := h.rew.Emit(c.Context(), call, c.Param(paramEpoch))
	return answerRun(c, r, r.State == rewarder.Settled, err)
}
