package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	walletapi "ronbox/httpapi/wire/wallet"
)

// The payment of the demonstration.
const (
	payer, payee = "alice", "bob"
	amount       = "12.00"
	payKey       = "demo-1"

	receiptName = "receipt.json"
	proofName   = "proof.json"

	mapZoom = 2 // the tiles of zooms 0 to mapZoom are read
)

// run is one demonstration.
type run struct {
	app
	dir  string
	node *node // nil until it is made
	paid walletapi.Posted
	done []step
}

// all runs the steps and reports each.
func (r *run) all(life context.Context) error {
	ctx, cancel := context.WithTimeoutCause(life, within, errors.New("the demonstration took longer than a minute"))
	defer cancel()
	steps := []struct {
		name string
		run  func(ctx, life context.Context) ([]string, error)
	}{
		{"a node", r.makeNode},
		{"a payment", r.pay},
		{"kill -9", r.crash},
		{"the same again", r.payAgain},
		{"its proof", r.prove},
		{"a map", r.drawMap},
	}
	for i, s := range steps {
		began := time.Now()
		shown, err := s.run(ctx, life)
		if err != nil {
			return r.failed(s.name, err, life.Err() == nil)
		}
		r.done = append(r.done, step{s.name, time.Since(began).Milliseconds(), shown})
		title := fmt.Sprintf("%d %s", i+1, s.name)
		for _, line := range shown {
			if err := r.print("%-17s %s\n", title, line); err != nil {
				return err
			}
			title = ""
		}
	}
	return nil
}

// failed returns the failure of a step, and prints the end of the node's log if that may help.
func (r *run) failed(name string, err error, helps bool) error {
	if helps && r.node != nil {
		if log := r.node.lastWords(); log != "" {
			r.Warn("%s", log)
		}
	}
	return cli.Fail(cli.ExitFailed, "demo", "`ronbox doctor` checks the machine; --keep keeps the files",
		"the step %q failed: %w", name, err)
}

func (r *run) makeNode(ctx, life context.Context) ([]string, error) {
	n, err := newNode(ctx, r.dir, r.Env, r.Build)
	if err != nil {
		return nil, err
	}
	r.node = n
	if err := n.start(ctx, life); err != nil {
		return nil, err
	}
	has, err := r.balance(ctx, payer)
	return []string{
		"made, and serving at " + n.url(),
		payer + " has " + has,
	}, err
}

// wallet returns the wallet of the node over TCP, with the token that init has written.
func (r *run) wallet() (walletapi.Client, error) {
	token, err := cli.ReadToken(r.node.cfg.Path(config.TokenName))
	if err != nil {
		return walletapi.Client{}, err
	}
	c, err := client.New(client.Options{URL: r.node.url(), Token: token})
	return walletapi.NewClient(c), err
}

// balance returns the balance of an account as people read it.
func (r *run) balance(ctx context.Context, account string) (string, error) {
	c, err := r.wallet()
	if err != nil {
		return "", err
	}
	defer c.Close()
	b, err := c.Balance(ctx, account, money, 0)
	if err != nil {
		return "", err
	}
	minor, err := engines.ParseAmount(b.AmountMinor)
	return minor.Decimal(decimals) + " " + money, err
}

// send sends the payment. It is the same request each time.
func (r *run) send(ctx context.Context) (walletapi.Posted, error) {
	c, err := r.wallet()
	if err != nil {
		return walletapi.Posted{}, err
	}
	defer c.Close()
	minor, err := engines.ParseDecimal(amount, decimals)
	if err != nil {
		return walletapi.Posted{}, err
	}
	order := walletapi.Transfer{From: payer, To: payee, Asset: money, AmountMinor: minor.String()}
	return c.Transfer(ctx, payKey, order)
}

func (r *run) pay(ctx, _ context.Context) ([]string, error) {
	paid, err := r.send(ctx)
	if err != nil {
		return nil, err
	}
	r.paid = paid
	return []string{
		fmt.Sprintf("%s paid %s %s %s", payer, payee, amount, money),
		"receipt " + paid.Receipt.TxID,
		"it was sent once the payment was on the disk",
	}, nil
}

func (r *run) crash(ctx, life context.Context) ([]string, error) {
	if err := r.node.kill(); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := r.node.start(ctx, life); err != nil {
		return nil, err
	}
	took := time.Since(began)
	has, err := r.balance(ctx, payee)
	if err == nil && has != amount+" "+money {
		err = fmt.Errorf("%s has %s, and was paid %s %s", payee, has, amount, money)
	}
	return []string{
		fmt.Sprintf("no warning; started again, the node served after %d ms", took.Milliseconds()),
		payee + " still has " + has,
	}, err
}

func (r *run) payAgain(ctx, _ context.Context) ([]string, error) {
	again, err := r.send(ctx)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again.Raw, r.paid.Raw) || !again.Replayed {
		return nil, fmt.Errorf("another receipt:\n%s\n%s", r.paid.Raw, again.Raw)
	}
	has, err := r.balance(ctx, payee)
	if err == nil && has != amount+" "+money {
		err = fmt.Errorf("%s has %s: it was paid twice", payee, has)
	}
	return []string{
		"the answer was lost, say: the same receipt, byte for byte",
		payee + " has " + has + ": nothing was paid twice",
	}, err
}

// prove checks the proof of the payment. Only the request for the proof asks the node.
func (r *run) prove(ctx, _ context.Context) ([]string, error) {
	c, err := r.wallet()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	raw, err := c.Proof(ctx, r.paid.Receipt.TxID, 0)
	if err != nil {
		return nil, err
	}
	head, err := verify(raw, r.paid.Raw)
	if err != nil {
		return nil, err
	}
	forged := bytes.Replace(r.paid.Raw, []byte(`"amount_minor":"12`), []byte(`"amount_minor":"13`), 1)
	if _, err := verify(raw, forged); err == nil {
		return nil, errors.New("the proof proves a forged receipt too")
	}
	for name, text := range map[string][]byte{receiptName: r.paid.Raw, proofName: raw} {
		if err := os.WriteFile(filepath.Join(r.dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	return []string{
		fmt.Sprintf("checked without the node: the receipt is in a log of %d batches", head.Batches),
		"a forged receipt of 13.00 " + money + " was refused",
	}, nil
}

// verify checks that a proof proves a receipt.
func verify(proof, receipt []byte) (record.Head, error) {
	var p record.Proof
	if err := json.Unmarshal(proof, &p); err != nil {
		return record.Head{}, err
	}
	proven, err := p.Verify()
	if err != nil {
		return record.Head{}, err
	}
	given, err := record.ParseReceipt(bytes.TrimSpace(receipt))
	if err != nil {
		return record.Head{}, err
	}
	if !bytes.Equal(given.AppendJSON(nil), proven.AppendJSON(nil)) {
		return record.Head{}, errors.New("the proof proves another receipt")
	}
	return p.Head, nil
}

// reference matches a file that the page of a map names.
var reference = regexp.MustCompile(`(?:href|src|data-tilejson|data-style)="([^"]+)"|from "([^"]+)"`)

func (r *run) mapURL() string { return r.node.url() + "/edge/preview/" + packName }

// drawMap reads what a browser would need to draw the map, and checks that all of it is the node's.
func (r *run) drawMap(ctx, _ context.Context) ([]string, error) {
	if err := r.node.awaitMap(ctx); err != nil {
		return nil, err
	}
	c, err := client.New(client.Options{URL: r.node.url()})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var page []byte
	head, err := c.Do(ctx, client.Call{Path: "/edge/preview/" + packName, Into: &page})
	if err != nil {
		return nil, err
	}
	if policy := head.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "//") || strings.Contains(policy, "*") {
		return nil, fmt.Errorf("the page may ask other hosts: %q", policy)
	}
	files, err := r.readFiles(ctx, c, r.mapURL(), page, map[string]bool{})
	if err != nil {
		return nil, err
	}
	tiles := 0
	for z := range mapZoom + 1 {
		for x := range 1 << z {
			for y := range 1 << z {
				if _, err := c.Bytes(ctx, fmt.Sprintf("/edge/tiles/%s/%d/%d/%d", packName, z, x, y)); err != nil {
					return nil, err
				}
				tiles++
			}
		}
	}
	return []string{
		fmt.Sprintf("%d tiles of the world and %d files, each from the node", tiles, files),
		"the page may ask no other host: it draws with the network off",
	}, nil
}

// readFiles reads the files that text, which came from base, names, and those that scripts among
// them name. It returns their number, or an error if one is elsewhere or not there.
func (r *run) readFiles(ctx context.Context, c *client.Client, base string, text []byte, seen map[string]bool) (
	int, error) {
	at, err := url.Parse(base)
	if err != nil {
		return 0, err
	}
	for _, m := range reference.FindAllSubmatch(text, -1) {
		name := string(bytes.Join(m[1:], nil))
		if strings.HasPrefix(name, "data:") {
			continue
		}
		to, err := at.Parse(name)
		if err != nil {
			return 0, err
		}
		if to.Host != at.Host {
			return 0, fmt.Errorf("%s names %s", base, to)
		}
		if seen[to.Path] {
			continue
		}
		seen[to.Path] = true
		k := client.Call{Path: to.RequestURI(), Header: http.Header{"Accept": {"*/*"}}}
		body, err := client.Ask[[]byte](ctx, c, k)
		if err != nil {
			return 0, err
		}
		if strings.HasSuffix(to.Path, "preview.js") {
			if _, err := r.readFiles(ctx, c, to.String(), body, seen); err != nil {
				return 0, err
			}
		}
	}
	return len(seen), nil
}
