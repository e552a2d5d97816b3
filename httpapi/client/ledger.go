package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire"
)

// maxExportLine is far above any line: a record is 800 bytes at most, a little more than twice that with its readable members.
const maxExportLine = 64 << 10

// LedgerHead reads where the ledger ends.
func (c *Client) LedgerHead(ctx context.Context) (wire.LedgerHead, error) {
	return ask[wire.LedgerHead](ctx, c, call{method: http.MethodGet, path: "/v1/ledger/head"})
}

// Roots lists batches after since, limit 0 for the node's own page.
func (c *Client) Roots(ctx context.Context, since uint64, limit int) (wire.Roots, error) {
	q := url.Values{}
	setNumber(q, "since", since)
	setNumber(q, "limit", uint64(max(limit, 0)))
	return ask[wire.Roots](ctx, c, call{method: http.MethodGet, path: "/v1/ledger/roots", query: q})
}

// Proof reads the proof that the ledger holds a record, as it was after the batch at, 0 for the newest. The bytes are as they were
// given: record.Proof reads and checks them.
func (c *Client) Proof(ctx context.Context, id string, at uint64) (raw []byte, err error) {
	q := url.Values{}
	setNumber(q, "at", at)
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/tx/" + url.PathEscape(id) + "/proof", query: q, into: &raw})
	return raw, err
}

// Consistency reads the proof that the ledger as of batch to began as that of batch from. The bytes are as they were given:
// record.Consistency reads and checks them.
func (c *Client) Consistency(ctx context.Context, from, to uint64) (raw []byte, err error) {
	q := url.Values{"from": {decimal(from)}, "to": {decimal(to)}}
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/ledger/consistency", query: q, into: &raw})
	return raw, err
}

// ExportLedger calls each for every line of the ledger's export, without its end, good until each returns: the records from the
// first to the last, 0 for the newest; with follow it stays and goes on with what comes. It ends when the node has given all, when
// ctx ends or each fails; ErrStop from each is no error. The client's timeout does not count: a node that is silent for
// DefaultIdle is given up, for it sends an empty line more often than that. That the answer was cut short is ErrUnknown: begin
// again behind the last batch.
func (c *Client) ExportLedger(ctx context.Context, from, to uint64, follow bool, each func(line []byte) error) error {
	q := url.Values{}
	setNumber(q, "from_seq", from)
	setNumber(q, "to_seq", to)
	if follow {
		q.Set("follow", "1")
	}
	k := call{method: http.MethodGet, path: "/v1/ledger/export", query: q}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := watch(cancel, DefaultIdle)
	defer watchdog.Stop()
	resp, err := c.send(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	err = eachLine(alive{resp.Body, watchdog, DefaultIdle}, each)
	var cut *cutError
	switch {
	case errors.As(err, &cut):
		return c.transportError(ctx, k.String(), cut.cause)
	case errors.Is(err, ErrStop):
		return nil
	}
	return err
}

// cutError says that an answer ended before it was whole.
type cutError struct{ cause error }

func (e *cutError) Error() string { return e.cause.Error() }

// eachLine reads lines to the end. One that holds a problem is the last; an empty one only says that the node lives.
func eachLine(body io.Reader, each func(line []byte) error) error {
	lines := bufio.NewReaderSize(body, maxExportLine)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("%w: a line of more than %d bytes", ErrTooLarge, maxExportLine)
		case errors.Is(err, io.EOF):
			return &cutError{io.ErrUnexpectedEOF}
		case err != nil:
			return &cutError{err}
		}
		if line = line[:len(line)-1]; len(line) == 0 {
			continue
		}
		if p := problemLine(line); p != nil {
			return p
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

// problemLine is the problem that ends an export, nil for any other line.
func problemLine(line []byte) *wire.Problem {
	if !bytes.HasPrefix(line, []byte(`{"problem":`)) {
		return nil
	}
	var end wire.ExportEnd
	if json.Unmarshal(line, &end) != nil {
		return nil
	}
	return end.Problem
}
