package rewarder

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/sig"
	"ronbox/appliance/upstream"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
	"ronbox/engines/fleet/usage"
	"ronbox/engines/index/name"
	"ronbox/engines/registry/record"
	edgeapi "ronbox/httpapi/wire/edge"
	registryapi "ronbox/httpapi/wire/registry"
)

// Bounds of the calls to other nodes.
const (
	askWithin = 10 * time.Second // for one try
	askTries  = 3
	askAtOnce = 16
)

// version sets the fields of r that describe the registry, and returns the view of the last version
// before the end of the epoch. The end depends on the length of an epoch, which a version sets, so
// versions are tried from the newest one until one was committed before the end that it sets, and
// that end has passed.
func (a app) version(ctx context.Context, c registryapi.Client, r *collection) (*fleet.View, error) {
	head, err := c.Head(ctx)
	if err != nil {
		return nil, err
	}
	if r.Genesis.IsZero() && head.Version > 0 {
		first, err := c.Version(ctx, 1, false)
		if err != nil {
			return nil, &cli.Failure{Outcome: cli.Outcome{Next: "pass the genesis of the registry with --genesis"},
				Err: fmt.Errorf("read the first version: %w", err)}
		}
		r.Genesis = first.PayloadB3
	}
	r.PairCap = r.share.String()
	var open time.Time // the end of the epoch by a version for which it has not passed
	for n := head.Version; n >= max(1, head.MinVersion); n-- {
		v, err := c.Version(ctx, n, true)
		if err != nil {
			return nil, err
		}
		at, err := record.ParseTime(v.CommittedAt)
		if err != nil {
			return nil, fmt.Errorf("version %d: %w", n, err)
		}
		items := make([]record.Item, len(v.Items))
		for i, raw := range v.Items {
			if items[i], err = record.ParseItem(raw); err != nil {
				return nil, fmt.Errorf("version %d: %w", n, err)
			}
		}
		view := fleet.New(n, r.Genesis, "", slices.Values(items))
		start, end := usage.Window(r.Epoch, view.Epoch)
		final := end.Add(usage.Grace(view.Epoch))
		switch {
		case !at.Before(end):
		case a.Now().Before(final):
			open = final
		default:
			r.Head, r.HeadAt, r.Start, r.End = n, v.CommittedAt, cli.FormatTime(start), cli.FormatTime(end)
			return view, nil
		}
	}
	if !open.IsZero() {
		return nil, cli.Fail(exitMissing, "epoch_open", "collect again after that",
			"epoch %d is not final before %s", r.Epoch, cli.FormatTime(open))
	}
	return nil, cli.Fail(cli.ExitFailed, "no_version", "check the epoch: it is Unix seconds divided by its length",
		"the node has no version of the registry from before the end of epoch %d", r.Epoch)
}

// gather reads the statements of the nodes of v that have an edge.
func (a app) gather(ctx context.Context, v *fleet.View, r *collection) error {
	nodes := slices.DeleteFunc(slices.Clone(v.Nodes), func(n fleet.Node) bool { return !n.Has(fleet.ServiceEdge) })
	for id := range r.without {
		if !slices.ContainsFunc(nodes, func(n fleet.Node) bool { return n.ID == id }) {
			return cli.Usage("--without %s: version %d has no such node with an edge", id, r.Head)
		}
	}
	if len(nodes) > usage.MaxNodes {
		return cli.Fail(cli.ExitFailed, "too_many_nodes", "",
			"version %d has %d nodes with an edge, at most %d are collected", r.Head, len(nodes), usage.MaxNodes)
	}
	rule, err := a.rule(v)
	if err != nil {
		return err
	}
	metrics := obs.NewMetrics()
	pool := lines.New(lines.Deps{
		Catalog: flow.NewCatalog(metrics, hclog.NewNullLogger()),
		Metrics: metrics,
		Rule:    func(*fleet.View) upstream.NodeRule { return rule },
	})
	defer pool.Close()
	to := pool.Set(v)
	r.Statements = make([]stated, len(nodes))
	next := make(chan int, len(nodes)) //rawchan: the nodes to ask
	for i, n := range nodes {
		r.Statements[i] = stated{Node: n.ID, State: stateWithout}
		if !r.without[n.ID] {
			next <- i
		}
	}
	close(next)
	return flow.Fan(ctx, askAtOnce, func(ctx context.Context, _ int) error {
		for i := range next {
			n, _ := to.Node(nodes[i].ID)
			r.Statements[i] = statement(ctx, n, v, r.Epoch)
		}
		return ctx.Err()
	})
}

// rule returns the rule of the configured node. Without a configuration, public addresses and nodes
// with pinned keys are asked.
func (a app) rule(v *fleet.View) (rule upstream.NodeRule, err error) {
	cfg, err := a.Config()
	if err != nil {
		return rule, nil
	}
	if rule.Allow, err = cfg.Fleet.PrivateNets(); err != nil {
		return rule, err
	}
	if self, ok := v.Node(cfg.Fleet.Node); ok {
		rule.Plain = strings.HasPrefix(self.Endpoint, "http:")
	}
	if cfg.Fleet.CAFile == "" {
		return rule, nil
	}
	raw, err := os.ReadFile(cfg.Fleet.CAFile)
	if err != nil {
		return rule, fmt.Errorf("fleet.ca_file: %w", err)
	}
	if rule.Roots, err = sig.Roots(raw); err != nil {
		return rule, fmt.Errorf("fleet.ca_file: %s %w", cfg.Fleet.CAFile, err)
	}
	return rule, nil
}

// statement reads and verifies the statement of a node.
func statement(ctx context.Context, n lines.Node, v *fleet.View, epoch uint64) stated {
	s := stated{Node: n.ID, State: stateMissing}
	raw, err := read(ctx, n, epoch)
	switch status := upstream.StatusOf(err); {
	case status == http.StatusConflict:
		s.Reason = "its statement is not final yet"
	case status == http.StatusNotFound:
		s.Reason = "it has no statement of this epoch"
	case err != nil:
		s.Reason = "does not answer: " + err.Error()
	}
	if err != nil {
		return s
	}
	s.parsed, err = verified(raw, n.Node, v, epoch)
	if err != nil {
		s.Reason = "its statement is refused: " + err.Error()
		return s
	}
	s.State, s.raw = stateOK, raw
	return s
}

// verified returns the statement of a node about an epoch, or an error that names the fault.
func verified(raw []byte, n fleet.Node, v *fleet.View, epoch uint64) (usage.Statement, error) {
	key, ok := keyOf(n.Identity)
	if !ok {
		return usage.Statement{}, fmt.Errorf("the identity %s has no key", n.Identity)
	}
	s, err := usage.Open(raw, key)
	if err == nil {
		err = s.Check(usage.Want{Genesis: v.Genesis, Node: n.ID, Identity: n.Identity, Epoch: epoch, Length: v.Epoch})
	}
	return s, err
}

// keyOf returns the key of an identity.
func keyOf(identity string) (ed25519.PublicKey, bool) { return name.PeerID(identity).Key() }

// read reads a statement from its node.
func read(ctx context.Context, n lines.Node, epoch uint64) (raw []byte, err error) {
	if n.Fault != nil {
		return nil, n.Fault
	}
	client := n.Line.Client(upstream.Spec{
		Service: "rewarder",
		Svc:     "node",
		Op:      "usage",
		Timeout: askWithin,
		Tries:   askTries,
		Delay:   func(n int) time.Duration { return time.Duration(n+1) * 500 * time.Millisecond },
	})
	r := upstream.Request{URL: n.Line.URL(edgeapi.UsagePath(epoch)), Max: usage.MaxSize}
	err = client.Get(ctx, r, func(a *upstream.Answer) (err error) {
		raw, err = io.ReadAll(a.Body)
		return err
	})
	return raw, err
}
