package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"ronbox/appliance/host"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi/client"
)

// askWithin bounds the request to an unknown process on a port. A node answers in milliseconds.
const askWithin = time.Second

// occupant describes the process that listens on the address of a node, and the advice to the
// operator.
type occupant struct {
	Seen   string // "the ronbox node on /srv/a (process 123) listens there"
	Advice string
}

// OccupantOf identifies the process that listens on the address of cfg by its open files, or by its
// answer to GET /version.
func OccupantOf(ctx context.Context, cfg *config.Config) occupant {
	const other = "or choose another address for this node with server.bind (RONBOX_SERVER__BIND)"
	p, known := host.Listener(cfg.Server.Bind)
	own := false
	for _, file := range p.Files {
		if filepath.Base(file) != config.DatabaseName {
			continue
		}
		if sameFile(file, cfg.Path(config.DatabaseName)) {
			own = true
			continue
		}
		dir := filepath.Dir(file)
		return occupant{
			fmt.Sprintf("the ronbox node on %s (process %d) listens there", dir, p.PID),
			stopNode(dir) + ", " + other,
		}
	}
	if own {
		return occupant{
			fmt.Sprintf("this node runs already, as process %d", p.PID),
			"use it, or " + stopNode(cfg.Node.DataDir),
		}
	}
	by := "the process that listens there"
	if known {
		by = fmt.Sprintf("process %d (%.200s)", p.PID, p.Command)
	}
	if id := nodeAt(ctx, cfg.URL()); id != "" {
		return occupant{fmt.Sprintf("the ronbox node %s listens there, %s", id, by), "stop that node, " + other}
	}
	if !known {
		return occupant{
			"a process of another user, or of another container, listens there",
			"stop it (`sudo ss -ltnp` names it), " + other,
		}
	}
	return occupant{by + " listens there, which is not a ronbox node", "stop it, " + other}
}

func stopNode(dir string) string {
	return "stop that node (`" + unit.Shell(os.Args[0], "--data-dir", dir, "drain") + "`)"
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	two, err := os.Stat(b)
	return err == nil && os.SameFile(one, two)
}

// nodeAt returns the id of the node that answers at url, or "".
func nodeAt(ctx context.Context, url string) string {
	c, err := client.New(client.Options{URL: url, Timeout: askWithin})
	if err != nil {
		return ""
	}
	defer c.Close()
	v, err := c.NodeVersion(ctx)
	if err != nil {
		return ""
	}
	return v.NodeID
}

// NamingOccupant returns err, an error of listening on the address of cfg. If another process uses
// the address, the error names it.
func NamingOccupant(ctx context.Context, err error, cfg *config.Config) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return portTaken{err, OccupantOf(ctx, cfg)}
	}
	return err
}

// portTaken is the error of listening on an address that another process uses.
type portTaken struct {
	error
	by occupant
}

func (e portTaken) Unwrap() error { return e.error }

func (e portTaken) Error() string { return e.error.Error() + ": " + e.by.Seen }

// Is reports whether target is EADDRINUSE, which outcomeOf knows.
func (e portTaken) Is(target error) bool { return target == syscall.EADDRINUSE }
