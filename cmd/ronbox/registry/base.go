package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

// registryNode is the part of registryapi.Client that the applier uses.
type registryNode interface {
	Head(ctx context.Context) (registryapi.Head, error)
	Version(ctx context.Context, v uint64, items bool) (registryapi.Version, error)
	Payload(ctx context.Context, v uint64) ([]byte, error)
	Signers(ctx context.Context, epoch uint64) (registryapi.Signers, error)
	Propose(ctx context.Context, payload []byte, wantB3 string) (registryapi.Proposed, error)
	Approve(ctx context.Context, id string, a registryapi.Approval) (registryapi.Approved, error)
	Commit(ctx context.Context, id string) (registryapi.Committed, bool, error)
}

// fetchBase reads HEAD as the base of a change. The answers of the node must fit the hash of HEAD,
// because a signer vouches for all of them.
func fetchBase(ctx context.Context, node registryNode, head registryapi.Head) (b record.Base, err error) {
	p, items, err := fetchItems(ctx, node, head.Version)
	if err != nil {
		return b, err
	}
	signers, err := node.Signers(ctx, 0)
	if err != nil {
		return b, err
	}
	set, err := record.ParseSignerSet(signers.SignerSet)
	if err != nil {
		return b, inconsistent("signer set: %w", err)
	}
	switch {
	case p.B3() != head.PayloadB3:
		return b, inconsistent("the payload has hash %s, HEAD names %s", p.B3(), head.PayloadB3)
	case set.B3() != p.SignerSetB3:
		return b, inconsistent("the signer set has hash %s, the signed payload names %s", set.B3(), p.SignerSetB3)
	}
	return record.Base{
		Origin: p.Origin, Version: p.Version, PayloadB3: p.B3(), Hash: head.Hash,
		Items: items, Signers: set,
	}, nil
}

// fetchItems reads the payload of a version, and its items, which must have the root that the
// payload names.
func fetchItems(ctx context.Context, node registryNode, v uint64) (p *record.Payload, items record.Items, err error) {
	raw, err := node.Payload(ctx, v)
	if err != nil {
		return nil, items, err
	}
	doc, err := node.Version(ctx, v, true)
	if err != nil {
		return nil, items, err
	}
	if p, err = record.ParsePayload(raw); err != nil {
		return nil, items, inconsistent("payload of version %d: %w", v, err)
	}
	list := make([]record.Item, len(doc.Items))
	for i, it := range doc.Items {
		if list[i], err = record.ParseItem(it); err != nil {
			return nil, items, inconsistent("item %d of version %d: %w", i, v, err)
		}
	}
	items, err = record.NewItems(list)
	switch {
	case err != nil:
		return nil, items, inconsistent("items of version %d: %w", v, err)
	case p.Version != v:
		return nil, items, inconsistent("the payload of version %d is of version %d", v, p.Version)
	case items.Root() != p.ItemsRoot:
		return nil, items, inconsistent("the items of version %d have root %s, the signed payload names %s", v,
			items.Root(), p.ItemsRoot)
	}
	return p, items, nil
}

func inconsistent(format string, args ...any) error {
	return cli.Fail(cli.ExitBad, "node_inconsistent",
		"do not sign: check a snapshot of the node with `ronbox registry verify`",
		"the node's answer does not match the signed payload: "+format, args...)
}

// complete returns the payload to sign: the draft on top of the base, completed.
func complete(base record.Base, d record.Draft, now time.Time) (*record.Payload, record.Items, error) {
	draft := d.Bytes() // a part of the payload: its size is a lower bound
	p, items, err := record.Complete(draft, base, now)
	switch {
	case err == nil && len(p.Bytes()) > maxPayload:
		return nil, items, tooLarge(len(p.Bytes()), d)
	case errors.Is(err, record.ErrHardLimit) && len(draft) > maxPayload:
		return nil, items, tooLarge(len(draft), d)
	case err != nil:
		return nil, items, fmt.Errorf("build version %d: %w", d.Version, err)
	}
	return p, items, nil
}

func tooLarge(n int, d record.Draft) error {
	steps := n/maxPayload + 1
	f := cli.Fail(
		cli.ExitFailed,
		"delta_too_large",
		fmt.Sprintf(
			"reach it in %d steps: make files with a part of the changes each, "+
				"and apply them in order, this one last",
			steps,
		),
		"the change, %d put and %d removed, takes %s in one signed payload; a request holds %s",
		len(d.Put),
		len(d.Remove),
		cli.Bytes(int64(n)),
		cli.Bytes(maxBody),
	)
	f.Details = map[string]any{"bytes": n, "max_bytes": maxBody, "steps": steps}
	return f
}
