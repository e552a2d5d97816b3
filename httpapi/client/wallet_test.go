package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

const receipt = `{"txid":"tx_01ARZ3NDEKTSV4RRFFQ69G5FAV","op":"burn","from":"a","asset":"ron","amount_minor":"5","nonce":2,` +
	`"ts":"2027-01-15T08:00:00.123Z","receipt_hash":"b3:00","ledger":{"seq":7,"batch":2,"root":"b3:00"},"more":1}`

// A write sends its key and returns the bytes of the answer, even with unknown members.
func TestPostKeepsTheBytes(t *testing.T) {
	var key, path, body string
	c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		key, path, body = r.Header.Get("Idempotency-Key"), r.URL.Path, string(raw)
		rw.Header().Set("Idempotent-Replayed", "true")
		_, _ = io.WriteString(rw, receipt)
	}, client.Options{})
	p, err := c.Burn(t.Context(), "k.1", walletapi.Burn{From: "a", Asset: "ron", AmountMinor: "5", Nonce: 2})
	if err != nil || string(p.Raw) != receipt || !p.Replayed || p.Receipt.Ledger.Seq != 7 ||
		p.Receipt.AmountMinor != "5" {
		t.Errorf("%+v, %v", p, err)
	}
	if want := `{"from":"a","asset":"ron","amount_minor":"5","nonce":2}`; key != "k.1" || path != "/v1/burn" ||
		body != want {
		t.Errorf("sent %s to %s under %q, want %s", body, path, key, want)
	}
}

// After an invalid answer the outcome is unknown.
func TestPostOfAForeignAnswer(t *testing.T) {
	for answer, unknown := range map[string]bool{"": true, "<html>": true, `{"txid":`: true, receipt: false} {
		c := serve(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, answer) },
			client.Options{})
		if _, err := c.Transfer(t.Context(), "k", walletapi.Transfer{}); errors.Is(err, client.ErrUnknown) != unknown ||
			client.Retryable(err) != unknown {
			t.Errorf("%q: %v", answer, err)
		}
	}
	cut := serve(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(rw, receipt)
	}, client.Options{})
	if _, err := cut.Transfer(t.Context(), "k", walletapi.Transfer{}); !errors.Is(err, client.ErrUnknown) ||
		!client.Retryable(err) {
		t.Errorf("cut short: %v", err)
	}
}

// A key that no header can carry is refused before anything is sent: that is no outcome that the
// same call could find out.
func TestKeysThatAreNone(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("sent") }, client.Options{})
	for _, key := range []string{"", "a\nb", "a\x00", "\x7f", "ä"} {
		if _, err := c.Transfer(t.Context(), key, walletapi.Transfer{}); err == nil || client.Retryable(err) ||
			errors.Is(err, client.ErrUnknown) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestQueriesOfTheWallet(t *testing.T) {
	var got string
	c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		got = r.URL.Path + "?" + r.URL.RawQuery
		_, _ = io.WriteString(rw, "{}")
	}, client.Options{})
	day := time.Date(2026, 1, 2, 3, 4, 5, 600, time.FixedZone("x", 3600))
	for want, ask := range map[string]func() error{
		"/v1/balance?account=a%3Ab%2Fc&asset=ron": func() error { _, err := c.Balance(t.Context(), "a:b/c", "ron", 0); return err },
		"/v1/balance?account=a&asset=ron&min_seq=7": func() error {
			_, err := c.Balance(t.Context(), "a", "ron", 7)
			return err
		},
		"/v1/history?account=a&asset=ron": func() error {
			_, err := c.History(t.Context(), walletapi.HistoryQuery{Account: "a", Asset: "ron"})
			return err
		},
		"/v1/history?account=a&asset=ron&cursor=c&limit=5&order=asc&since=2026-01-02T02%3A04%3A05.0000006Z&until=2026-01-02T02%3A04%3A05.0000006Z": func() error {
			_, err := c.History(t.Context(), walletapi.HistoryQuery{Account: "a", Asset: "ron", Cursor: "c", Limit: 5, Order: "asc", Since: day, Until: day})
			return err
		},
		"/v1/ledger/roots?":                     func() error { _, err := c.Roots(t.Context(), 0, 0); return err },
		"/v1/ledger/roots?limit=5&since=3":      func() error { _, err := c.Roots(t.Context(), 3, 5); return err },
		"/v1/tx/tx_1/proof?":                    func() error { _, err := c.Proof(t.Context(), "tx_1", 0); return err },
		"/v1/tx/tx_1%2F/proof?at=9":             func() error { _, err := c.Proof(t.Context(), "tx_1%2F", 9); return err },
		"/v1/ledger/consistency?from=1&to=2":    func() error { _, err := c.Consistency(t.Context(), 1, 2); return err },
		"/v1/account?account=sys%3Aissue%3Aron": func() error { _, err := c.Account(t.Context(), "sys:issue:ron"); return err },
	} {
		if err := ask(); err != nil || got != want {
			t.Errorf("asked %s, %v, want %s", got, err, want)
		}
	}
}

// exports answers with the lines, whole or cut.
func exports(t *testing.T, body string, whole bool) *apiClient {
	return serve(t, func(rw http.ResponseWriter, _ *http.Request) {
		if !whole {
			rw.Header().Set("Content-Length", fmt.Sprint(len(body)+1))
		}
		_, _ = io.WriteString(rw, body)
	}, client.Options{})
}

func TestExportLines(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		doc, body string
		whole     bool
		stop      error // of the second line
		lines     int
		want      error
	}{
		{"nothing", "", true, nil, 0, nil}, {"two", "{\"a\":1}\n{}\n", true, nil, 2, nil}, {"a stop", "{}\n{}\n{}\n", true, client.ErrStop, 2, nil},
		{"a failure", "{}\n{}\n{}\n", true, boom, 2, boom}, {"cut between lines", "{}\n", false, nil, 1, client.ErrUnknown},
		{"cut within a line", "{}\n{\"a\"", true, nil, 1, client.ErrUnknown}, {"cut by both", "{}\n{", false, nil, 1, client.ErrUnknown},
		{"a line beyond all", "{}\n" + strings.Repeat("x", 70_000) + "\n", true, nil, 1, client.ErrTooLarge},
	} {
		n := 0
		err := exports(t, tt.body, tt.whole).ExportLedger(t.Context(), 1, 2, false, func([]byte) error {
			if n++; n == 2 {
				return tt.stop
			}
			return nil
		})
		if n != tt.lines || !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%s: %d lines, %v, want %d, %v", tt.doc, n, err, tt.lines, tt.want)
		}
	}
	end := `{"problem":{"type":"x","title":"Not ready","status":503,"code":"UPSTREAM_UNAVAILABLE","reason":"upstream","service":"wallet","retryable":true}}` + "\n"
	err := exports(t, "{}\n"+end, true).ExportLedger(t.Context(), 0, 0, true, func([]byte) error { return nil })
	if p, ok := errors.AsType[*wire.Problem](err); !ok || p.Reason != "upstream" || !client.Retryable(err) {
		t.Errorf("a problem at the end: %v", err)
	}
}
