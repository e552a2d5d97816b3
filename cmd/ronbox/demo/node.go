package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/engines/edge/asset"
	"ronbox/httpapi/client"
	edgeapi "ronbox/httpapi/wire/edge"
	nodeapi "ronbox/httpapi/wire/node"
)

const (
	money     = "ron"
	decimals  = 2
	packName  = "world"
	anyPort   = "127.0.0.1:0"
	poll      = 20 * time.Millisecond // of a node that starts
	tailBytes = 2000                  // of the log, shown after a failure
)

// node is the node of a demonstration: a process that may be killed and started again.
type node struct {
	build server.Build
	cfg   *config.Config
	env   []string // without the variables that configure a node
	bind  string
	log   string
	cmd   *exec.Cmd // nil: it does not run
	c     *client.Client
}

// newNode creates the files of a node in dir, which must be empty or absent.
func newNode(ctx context.Context, dir string, env []string, build server.Build) (*node, error) {
	n := &node{build: build, bind: anyPort, log: filepath.Join(dir, "node.log")}
	for _, v := range env {
		if !strings.HasPrefix(v, "RONBOX_") {
			n.env = append(n.env, v)
		}
	}
	cfg, err := config.Load(config.LoadOptions{DataDir: dir, Env: n.env})
	if err != nil {
		return nil, err
	}
	n.cfg = cfg
	cfg.Wallet.Assets = []string{fmt.Sprintf("%s:%d", money, decimals)}
	if _, err := server.Init(ctx, cfg, initdir.Options{Dev: true, Made: build.Made}); err != nil {
		return nil, err
	}
	packs := cfg.Path(config.PacksName)
	if err := os.MkdirAll(packs, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(packs, packName+".pmtiles"), world, 0o600); err != nil {
		return nil, err
	}
	n.c, err = client.New(client.Options{
		Socket: cfg.SocketPath(), UserAgent: "ronbox-demo/" + build.Version, Starting: n.alive,
	})
	return n, err
}

// start runs the node until life ends, and returns once it is ready or ctx has ended. At a second
// start it listens on the same port.
func (n *node) start(ctx, life context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the node has its own descriptor
	n.cmd = exec.CommandContext(life, self, "--data-dir", n.cfg.Node.DataDir, "serve")
	n.cmd.Env = append(n.env, "RONBOX_SERVER__BIND="+n.bind)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.Cancel = func() error { return n.cmd.Process.Signal(syscall.SIGTERM) }
	// a terminal sends Ctrl-C to a process group: only this command gets it, and stops the node
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.cmd = nil
		return err
	}
	return n.awaitReady(ctx)
}

var errEnded = errors.New("the node has ended")

// awaitReady returns once the node is ready.
func (n *node) awaitReady(ctx context.Context) error {
	return n.until(ctx, func() (bool, error) {
		s, err := nodeapi.NewClient(n.c).Status(ctx)
		if err != nil || !s.Ready {
			return false, err
		}
		at, err := url.Parse(s.URL)
		if err != nil {
			return false, err
		}
		n.bind = at.Host
		return true, nil
	})
}

// awaitMap returns once the node has verified the map, which it then serves.
func (n *node) awaitMap(ctx context.Context) error {
	return n.until(ctx, func() (bool, error) {
		all, err := edgeapi.NewClient(n.c).Catalog(ctx)
		return err == nil && len(all.Packs) == 1 && all.Packs[0].State == string(asset.PackVerified), err
	})
}

// until polls the node until is returns true. A node that starts offers no event to wait for.
func (n *node) until(ctx context.Context, is func() (bool, error)) error {
	tick := time.NewTicker(poll) //rawchan: stopped at the end of the wait
	defer tick.Stop()
	for {
		done, err := is()
		switch {
		case done:
			return nil
		case ctx.Err() != nil:
			return errors.Join(context.Cause(ctx), err)
		case !n.alive():
			return errEnded
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// alive reports whether the process of the node has not ended.
func (n *node) alive() bool {
	if n.cmd == nil {
		return false
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, n.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == 0
}

// url returns the URL of the node.
func (n *node) url() string { return "http://" + n.bind }

// kill ends the process as kill -9 does.
func (n *node) kill() error {
	if n.cmd == nil {
		return nil
	}
	err := n.cmd.Process.Kill()
	_ = n.cmd.Wait() // it was killed
	n.cmd = nil
	return err
}

// wait returns once the process has ended by itself, or because its life has.
func (n *node) wait() error {
	err := n.cmd.Wait()
	n.cmd = nil
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// lastWords returns the end of the log of the node.
func (n *node) lastWords() string {
	raw, err := cli.ReadFile(n.log, 1<<20)
	if err != nil {
		return ""
	}
	if len(raw) > tailBytes {
		raw = raw[len(raw)-tailBytes:]
		raw = raw[bytes.IndexByte(raw, '\n')+1:]
	}
	return strings.TrimSpace(string(raw))
}
