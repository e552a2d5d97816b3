package ledger

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"ronbox/engines/ledger/period"
	"ronbox/httpapi"
	ledgerapi "ronbox/httpapi/wire/ledger"
)

// PeriodReader reads what is known of closed periods.
type PeriodReader interface {
	Horizon(ctx context.Context) (period.Horizon, error)
	Periods(ctx context.Context, after uint64, n int) ([]period.Listed, error)
}

const periodsPage = 100 // periods of a page

var (
	periodsAfter = number("after", 0, "the period before the first")
	periodsLimit = httpapi.Number("limit", periodsPage, 1, periodsPage, "rows of a page")
)

func (h handlers) periodRoutes() []httpapi.Route {
	return httpapi.Routes(
		Read,
		httpapi.Route{
			Pattern: "ledger/horizon",
			Handle:  h.getHorizon,
			ID:      "getLedgerHorizon",
			Summary: "The end of the last closed period of the ledger",
			Answers: ok(ledgerapi.LedgerHorizon{}),
		},
		httpapi.Route{
			Pattern: "ledger/periods",
			Handle:  h.getPeriods,
			ID:      "listLedgerPeriods",
			Summary: "Closed periods of the ledger, oldest first",
			Answers: ok(ledgerapi.LedgerPeriods{}),
			Query:   httpapi.Params(periodsAfter, periodsLimit),
		},
		httpapi.Route{
			Pattern:  "ledger/periods/:" + paramPeriod,
			Handle:   h.getPeriod,
			ID:       "getLedgerPeriod",
			Summary:  "One closed period of the ledger, with its statement",
			Answers:  ok(ledgerapi.LedgerPeriod{}),
			Problems: []int{http.StatusNotFound},
		},
	)
}

// getHorizon serves GET /v1/ledger/horizon.
func (h handlers) getHorizon(c *httpapi.Request) error {
	at, err := h.led.Horizon(c.Context())
	if err != nil {
		return err
	}
	out := ledgerapi.LedgerHorizon{Period: at.Period, Seq: at.Seq, Batch: at.Batch}
	if at.Period != 0 {
		out.At, out.Statement = Instant(at.At), at.Statement.String()
		out.DropSeq, out.ReclaimBytes = at.DropSeq, at.Reclaim
	}
	return c.Respond(http.StatusOK, out)
}

// getPeriods serves GET /v1/ledger/periods.
func (h handlers) getPeriods(c *httpapi.Request) error {
	after, err := periodsAfter.Of(c)
	if err != nil {
		return err
	}
	limit, err := periodsLimit.Of(c)
	if err != nil {
		return err
	}
	list, err := h.led.Periods(c.Context(), after, int(limit))
	if err != nil {
		return err
	}
	out := ledgerapi.LedgerPeriods{Periods: make([]ledgerapi.LedgerPeriod, len(list))}
	for i := range list {
		out.Periods[i] = periodBody(&list[i])
	}
	if len(list) == int(limit) {
		out.Next = list[len(list)-1].Period
	}
	return c.Respond(http.StatusOK, out)
}

// NoPeriodError is returned for a number that no closed period has.
type NoPeriodError struct{ Period uint64 }

func (e *NoPeriodError) Error() string { return fmt.Sprintf("period %d is not closed", e.Period) }

// getPeriod serves GET /v1/ledger/periods/:period.
func (h handlers) getPeriod(c *httpapi.Request) error {
	n := c.NumberParam(paramPeriod)
	list, err := h.led.Periods(c.Context(), n-1, 1)
	switch {
	case err != nil:
		return err
	case len(list) == 0 || list[0].Period != n:
		return &NoPeriodError{n}
	}
	return c.Respond(http.StatusOK, periodBody(&list[0]))
}

func periodBody(p *period.Listed) ledgerapi.LedgerPeriod {
	return ledgerapi.LedgerPeriod{
		Period: p.Period, FromSeq: p.FromSeq, ToSeq: p.ToSeq, FromBatch: p.FromBatch, ToBatch: p.ToBatch,
		FromAt: Instant(p.FromAt), ToAt: Instant(p.ToAt), LogRoot: p.LogRoot.String(), StateRoot: p.StateRoot.String(),
		Statement: p.Row.Statement, CloseSeq: p.Row.CloseSeq, ClosedAt: Instant(p.Row.ClosedAt),
		File: filepath.Base(p.Row.File), FileB3: p.Row.FileB3.String(), ContentB3: p.Row.ContentB3.String(),
		Bytes: p.Row.Bytes, Copies: p.Row.Copies,
	}
}
