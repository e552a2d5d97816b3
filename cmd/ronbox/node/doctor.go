package node

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/checkup"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
)

func (a app) doctorCmd() *cobra.Command {
	var bundle string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the machine and the data directory for problems",
		Long: `Check the machine for problems: the configuration, whether the node runs, its port and
directory, the file system and its sync latency, free disk space, kernel, clock, swap,
memory, limits. A running node adds its tasks, its commits, the growth of the file and the
age of the last snapshot. Run it as the user of the node. It takes about a second and
writes only a temporary file in the data directory.

A finding is "warn" if it affects performance or convenience, and "bad" if the node
cannot start or cannot guarantee its data. Each finding includes advice. Exit 3: a
finding is bad.

With --bundle it writes the findings, and what else a maintainer needs to see, into a new
.tar.gz with mode 0600: configuration without secrets, status, tasks, queues, the last
hour of series, metrics, profiles and sizes of the database. README.txt in it describes
each file. If the node does not run, it has what the file and the configuration tell. The
exit code is then 0 even if a finding is bad.`,
		Example: `  ronbox --data-dir data doctor
  ronbox doctor --json | jq '.findings[] | select(.level != "ok")'
  ronbox --data-dir data doctor --bundle ronbox-bundle.tar.gz`,
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "write a bundle for a maintainer to this new `file`")
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error {
		if bundle != "" {
			return a.bundle(ctx, bundle)
		}
		return a.doctor(ctx)
	})
	return cmd
}

// doctorDoc is the output of doctor.
type doctorDoc struct {
	OK       bool           `json:"ok"` // nothing is bad
	Findings []host.Finding `json:"findings"`
}

func (a app) doctor(ctx context.Context) error {
	findings := a.findings(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	bad := firstBad(findings)
	err := a.Show(doctorDoc{OK: bad == nil, Findings: findings}, func(t cli.Table) {
		for _, f := range findings {
			findingRows(t, f)
		}
	})
	if err != nil || bad == nil {
		return err
	}
	return a.FoundBad(bad.Seen, bad.Check)
}

// findings checks the configuration, the machine and, if it runs, the node.
func (a app) findings(ctx context.Context) []host.Finding {
	cfg, first := a.examineConfig()
	node, running := a.examineNode(ctx, cfg)
	out := append([]host.Finding{first, node}, checkup.Of(ctx, cfg, a.Build.Made, running)...)
	if running {
		out = append(out, a.askDoctor(ctx, cfg, out)...)
	}
	return out
}

// firstBad returns the first bad finding, or nil.
func firstBad(findings []host.Finding) *host.Finding {
	if i := slices.IndexFunc(findings, func(f host.Finding) bool { return f.Level == host.Bad }); i >= 0 {
		return &findings[i]
	}
	return nil
}

// askDoctor returns the findings that only the running node can make: those of checks that known
// does not have. The finding "node" has its readiness, and the reason if it cannot be asked.
func (a app) askDoctor(ctx context.Context, cfg *config.Config, known []host.Finding) (out []host.Finding) {
	c, err := a.ClientAt(cfg.SocketPath())
	if err != nil {
		return nil
	}
	defer c.Close()
	own, err := nodeapi.NewClient(c).Doctor(ctx)
	if err != nil {
		return nil
	}
	levels := map[string]host.Level{"ok": host.OK, "warn": host.Warn, "fail": host.Bad}
	for _, f := range own.Findings {
		had := slices.ContainsFunc(known, func(k host.Finding) bool { return k.Check == f.Check })
		if !had && f.Check != checkup.Ready {
			out = append(out, host.Finding{Check: f.Check, Level: levels[f.State], Seen: f.Message, Advice: f.Next})
		}
	}
	return out
}

// findingRows shows one finding, and the advice below it.
func findingRows(t cli.Table, f host.Finding) {
	word := map[host.Level]any{host.OK: cli.OK("ok"), host.Warn: cli.Warn("warn"), host.Bad: cli.Bad("BAD")}[f.Level]
	t.Row(word, f.Check, f.Seen)
	if f.Advice != "" {
		t.Row("", "", "-> "+f.Advice)
	}
}

// examineConfig loads the configuration. If it has a fault, the other checks use the defaults.
func (a app) examineConfig() (*config.Config, host.Finding) {
	cfg, err := config.Load(a.ConfigOptions(""))
	if err == nil {
		seen := configFile(a.ConfigOptions(""), cfg)
		if seen == "" {
			seen = "no file, defaults hold"
		}
		return cfg, host.Finding{Check: "config", Level: host.OK, Seen: seen}
	}
	return a.FallbackConfig(), host.Finding{
		Check: "config", Level: host.Bad, Seen: strings.Join(strings.Fields(err.Error()), " "),
		Advice: cli.Classify(cli.ConfigFailure(err)).Next + "; check it with `ronbox config check`",
	}
}

// examineNode asks whether a node runs on the data directory. It is not a fault if none does.
func (a app) examineNode(ctx context.Context, cfg *config.Config) (f host.Finding, running bool) {
	f = host.Finding{Check: "node", Level: host.OK}
	c, err := a.ClientAt(cfg.SocketPath())
	if err != nil {
		f.Level, f.Seen, f.Advice = host.Warn, err.Error(), "correct the flags that name the node"
		return f, false
	}
	defer c.Close()
	r, err := c.Ready(ctx, "", "")
	switch {
	case errors.Is(err, fs.ErrPermission):
		f.Level, f.Seen, f.Advice = host.Warn, "cannot be asked: "+err.Error(), "run doctor as the user of the node"
	case errors.Is(err, client.ErrNotReachable):
		f.Seen = "does not run here"
	case err != nil:
		f.Level, f.Seen, f.Advice = host.Warn, "runs, but does not answer: "+err.Error(), "look at its log"
	case !r.Ready:
		f.Level, f.Seen, f.Advice = host.Warn, "runs, but is not ready: "+strings.Join(
			r.Missing,
			", ",
		), "`ronbox status` shows the reason"
	default:
		f.Seen = "runs and is ready, at " + c.Where()
	}
	return f, !errors.Is(err, client.ErrNotReachable)
}
