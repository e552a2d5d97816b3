package checkpoint

import (
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/b3"
)

// Retention is the statement that a node signs before it deletes anything of its log: the checkpoint that covers what goes, and the place
// from which on the log stays whole. It is a note of its own, so that the checkpoint remains one that witnesses know.
type Retention struct {
	Tree                // an archived checkpoint over all that goes
	Head      b3.Digest // of the entry of version Size
	Min       uint64    // the first version that is kept whole
	ItemsRoot string    // as the payload of version Min has it signed
	Snapshot  b3.Digest // of the items of version Min, as record.Snapshot writes them
}

// The text of a statement: who makes it, and what it says.
const (
	retentionTitle = "/retention\n"
	retentionSays  = "size %d\nroot %s\nhead %s\nmin %d\nsnapshot %d %s %s\n"
)

// Text is what is signed.
func (r Retention) Text() string {
	return r.Origin + retentionTitle + fmt.Sprintf(retentionSays, r.Size, r.Root, r.Head, r.Min, r.Min, r.ItemsRoot, r.Snapshot)
}

// ParseRetention reads the text of a statement in its one spelling.
func ParseRetention(text string) (r Retention, err error) {
	origin, says, ok := strings.Cut(text, retentionTitle)
	var root, head, snapshot string
	var at uint64
	if ok {
		_, err = fmt.Sscanf(says, retentionSays, &r.Size, &root, &head, &r.Min, &at, &r.ItemsRoot, &snapshot)
	}
	if r.Origin = origin; err == nil {
		r.Root, err = tlog.ParseHash(root)
	}
	if err == nil {
		r.Head, err = b3.Parse(head)
	}
	if err == nil {
		r.Snapshot, err = b3.Parse(snapshot)
	}
	if err != nil || !ok || r.Text() != text {
		return Retention{}, fmt.Errorf("%w: no statement of retention (%v)", ErrForm, err)
	}
	return r, nil
}
