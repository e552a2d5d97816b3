package rewarder

import (
	"cmp"
	"io"
	"math"
	"net/http"
	"strconv"

	"ronbox/appliance/b3"
	"ronbox/engines/rewarder"
	"ronbox/httpapi"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

// handlers serve the routes of the rewarder.
type handlers struct{ rew *rewarder.Engine }

// as returns a handler that calls serve for the caller's tenant and responds with its result. A
// token that names an epoch has access to this epoch only.
func as[T any](status func(T) int, serve func(*httpapi.Request, rewarder.Call) (T, error)) httpapi.Handler {
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
		body, err := serve(c, call)
		if err != nil {
			return err
		}
		return c.Respond(status(body), body)
	}
}

// Statuses of answers.
func ok[T any](T) int      { return http.StatusOK }
func created[T any](T) int { return http.StatusCreated }

func putStatus(p rewarder.Policy) int { return either(p.Created, http.StatusCreated) }
func runStatus(r rewarder.Run) int    { return either(r.State == rewarder.Accepted, http.StatusAccepted) }
func paymentStatus(r rewarder.Run) int {
	return either(r.State != rewarder.Settled, http.StatusAccepted)
}

// either returns status if other is true, and 200 otherwise.
func either(other bool, status int) int {
	if other {
		return status
	}
	return http.StatusOK
}

// digestParam returns a path parameter that the router has checked to be a digest.
func digestParam(c *httpapi.Request, name string) b3.Digest {
	d, _ := b3.Parse(c.Param(name))
	return d
}

func (h handlers) putPolicy(c *httpapi.Request, call rewarder.Call) (p rewarder.Policy, err error) {
	var in rewarderapi.PolicyPut
	if err := c.Decode(&in); err != nil {
		return p, err
	}
	return h.rew.PutPolicy(c.Context(), call, c.Param(paramPolicy), in.Body, in.Signatures)
}

func (h handlers) getPolicy(c *httpapi.Request, call rewarder.Call) (rewarder.Policy, error) {
	return h.rew.Policy(c.Context(), call.Tenant, c.Param(paramPolicy))
}

func (h handlers) postInput(c *httpapi.Request, call rewarder.Call) (u rewarder.Upload, err error) {
	var in rewarder.OpenInput
	if err := c.Decode(&in); err != nil {
		return u, err
	}
	g := call.By.Grant
	if err := cmp.Or(g.Epoch(in.EpochID), g.Account(in.Account), g.Asset(in.Asset),
		g.Amount(in.PoolMinor)); err != nil {
		return u, err
	}
	return h.rew.OpenInput(c.Context(), call, in)
}

// putPart serves a part in CSV or in JSON lines.
func (h handlers) putPart(csv bool) httpapi.Handler {
	return as(ok, func(c *httpapi.Request, call rewarder.Call) (u rewarder.Upload, err error) {
		body, err := io.ReadAll(c.Stream()) // bounded by the cap of the route
		if err != nil {
			return u, err
		}
		n := uint32(min(c.NumberParam(paramPart), math.MaxUint32)) // an upload has fewer
		return h.rew.PutPart(c.Context(), call, digestParam(c, paramUpload), n, csv, body)
	})
}

// getInputs lists uploads, a page of up to ?limit= after ?after=.
func (h handlers) getInputs(c *httpapi.Request, call rewarder.Call, limit int) (page rewarder.UploadPage, err error) {
	text, err := after.Of(c)
	if err != nil {
		return page, err
	}
	var at b3.Digest
	if text != "" {
		if at, err = b3.Parse(text); err != nil {
			return page, httpapi.BadQuery("after", "must be next of the page before")
		}
	}
	return h.rew.Uploads(c.Context(), call, at, limit)
}

// deleteInput drops an upload. It answers without a body.
func (h handlers) deleteInput(c *httpapi.Request) error {
	by := c.Actor()
	call := rewarder.Call{By: by, Tenant: cmp.Or(by.Tenant, rewarder.DefaultTenant), CorrID: c.CorrID()}
	if err := h.rew.DropUpload(c.Context(), call, digestParam(c, paramInputs)); err != nil {
		return err
	}
	return c.Empty()
}

func (h handlers) postSeal(c *httpapi.Request, call rewarder.Call) (rewarder.Input, error) {
	return h.rew.SealInput(c.Context(), call, digestParam(c, paramUpload))
}

func (h handlers) getInput(c *httpapi.Request, call rewarder.Call) (rewarder.Input, error) {
	return h.rew.Input(c.Context(), call.Tenant, digestParam(c, paramInputs))
}

func (h handlers) postCompute(c *httpapi.Request, call rewarder.Call) (run rewarder.Run, err error) {
	var in rewarder.ComputeRequest
	if err := c.Decode(&in); err != nil {
		return run, err
	}
	in.Deadline = c.CallerDeadline()
	run, err = h.rew.Compute(c.Context(), call, c.Param(paramEpoch), in)
	if err == nil && run.State == rewarder.Accepted {
		c.Set("Location", prefix+"epochs/"+run.Epoch)
		c.Set("Retry-After", "1")
	}
	return run, err
}

// getEpoch reads a run. With ?seen= it waits up to 3 s for a change.
func (h handlers) getEpoch(c *httpapi.Request, call rewarder.Call) (rewarder.Run, error) {
	mark, err := seen.Of(c)
	if err != nil {
		return rewarder.Run{}, err
	}
	if mark != "" {
		return h.rew.Follow(c.Context(), call.Tenant, c.Param(paramEpoch), mark)
	}
	return h.rew.Epoch(c.Context(), call.Tenant, c.Param(paramEpoch))
}

// Query parameters.
var (
	limit = httpapi.Number("limit", defaultPage, 1, rewarder.MaxPage, "rows of a page")
	after = httpapi.Text("after", "next of the page before")
	from  = httpapi.Number("from", 0, 0, math.MaxUint32, "next of the page before")
	actor = httpapi.Text("actor", "its account").Required()
	seen  = httpapi.Text("seen", "mark of an earlier answer: wait up to 3 s for a change")
)

// paged returns a handler that reads a page of up to ?limit= rows.
func paged[T any](read func(c *httpapi.Request, call rewarder.Call, limit int) (T, error)) httpapi.Handler {
	return as(ok, func(c *httpapi.Request, call rewarder.Call) (page T, err error) {
		n, err := limit.Of(c)
		if err != nil {
			return page, err
		}
		return read(c, call, int(n))
	})
}

// named returns a handler that reads a page of up to ?limit= rows after ?after=.
func named[T any](
	read func(c *httpapi.Request, call rewarder.Call, after string, limit int) (T, error),
) httpapi.Handler {
	return paged(func(c *httpapi.Request, call rewarder.Call, limit int) (page T, err error) {
		at, err := after.Of(c)
		if err != nil {
			return page, err
		}
		return read(c, call, at, limit)
	})
}

// numbered returns a handler that reads a page of up to ?limit= rows from ?from= on.
func numbered[T any](
	read func(c *httpapi.Request, call rewarder.Call, from uint64, limit int) (T, error),
) httpapi.Handler {
	return paged(func(c *httpapi.Request, call rewarder.Call, limit int) (page T, err error) {
		at, err := from.Of(c)
		if err != nil {
			return page, err
		}
		return read(c, call, at, limit)
	})
}

func (h handlers) getEpochs(
	c *httpapi.Request, call rewarder.Call, after string, limit int,
) (rewarder.EpochPage, error) {
	return h.rew.Epochs(c.Context(), call.Tenant, after, limit)
}

// Orders of allocations.
const (
	orderActor  = "actor"
	orderAmount = "amount"
)

var allocationOrder = httpapi.Enum("order", orderActor,
	"amount: the largest ones, limit of at most 100 and no page after it; actor: all, by page", orderActor, orderAmount)

func (h handlers) getAllocations(
	c *httpapi.Request, call rewarder.Call, after string, limit int,
) (rewarder.AllocationPage, error) {
	order, err := allocationOrder.Of(c)
	switch {
	case err != nil:
		return rewarder.AllocationPage{}, err
	case order == orderActor:
		return h.rew.Allocations(c.Context(), call.Tenant, c.Param(paramEpoch), after, limit)
	case after != "":
		return rewarder.AllocationPage{}, httpapi.BadQuery("after", "there are no more pages in this order")
	case limit > rewarder.MaxLargest:
		return rewarder.AllocationPage{}, httpapi.BadQuery("limit",
			"must be at most "+strconv.Itoa(rewarder.MaxLargest)+" in this order")
	}
	return h.rew.Largest(c.Context(), call.Tenant, c.Param(paramEpoch), limit)
}

func (h handlers) getSettlement(
	c *httpapi.Request, call rewarder.Call, from uint64, limit int,
) (rewarder.Settlement, error) {
	return h.rew.Settlement(c.Context(), call.Tenant, c.Param(paramEpoch), uint32(from), limit)
}

func (h handlers) getProof(c *httpapi.Request, call rewarder.Call) (rewarder.RewardProof, error) {
	account, err := actor.Of(c)
	if err != nil {
		return rewarder.RewardProof{}, err
	}
	return h.rew.Proof(c.Context(), call.Tenant, c.Param(paramEpoch), account)
}

// getParked lists payees that were parked.
func (h handlers) getParked(
	c *httpapi.Request, call rewarder.Call, from uint64, limit int,
) (rewarder.ParkedPage, error) {
	return h.rew.Parked(c.Context(), call.Tenant, c.Param(paramEpoch), from, limit)
}

func (h handlers) postEmit(c *httpapi.Request, call rewarder.Call) (run rewarder.Run, err error) {
	var in rewarderapi.EmitRequest
	if body := c.Body(); len(body) > 0 {
		if err := httpapi.Decode(body, &in); err != nil {
			return run, err
		}
	}
	return h.rew.Emit(c.Context(), call, c.Param(paramEpoch), in.SkipRefused)
}

func (h handlers) getPolicies(
	c *httpapi.Request, call rewarder.Call, after string, limit int,
) (rewarder.PolicyPage, error) {
	return h.rew.Policies(c.Context(), call.Tenant, after, limit)
}

func (h handlers) files(rebuild bool) func(*httpapi.Request, rewarder.Call) (rewarder.RunFiles, error) {
	return func(c *httpapi.Request, call rewarder.Call) (rewarder.RunFiles, error) {
		return h.rew.Files(c.Context(), call, c.Param(paramEpoch), rebuild)
	}
}
