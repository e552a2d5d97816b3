package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/manual"
	"ronbox/cmd/ronbox/server"
	"ronbox/store"
)

// App is one run of the command: its streams, its flags and the state that verbs share.
type App struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Now    func() time.Time
	Env    []string // in the form of os.Environ
	Flags  Flags
	Build  server.Build
	Exit   int        // exit code of a verb that returns no error
	rows   []ErrorRow // of the packages of verbs
	ran    bool       // a verb was called: errors are its own, not those of the command line

	line *Progress // the last one, whose line on the terminal a message clears

	printed bool // a request was printed for --print-curl

	stopping atomic.Pointer[store.LockedError] // the process of a node that was asked while it stops
}

// Flags are the global flags.
type Flags struct {
	Config    string
	DataDir   string
	Socket    string
	URL       string
	CAFile    string
	TokenFile string
	Timeout   time.Duration
	JSON      bool
	Quiet     bool
	Yes       bool
	PrintCurl bool
}

// New returns an App with these streams.
func New(stdin io.Reader, stdout, stderr io.Writer, build server.Build) *App {
	return &App{Stdin: stdin, Stdout: stdout, Stderr: stderr, Build: build, Now: time.Now, Env: os.Environ()}
}

// Outcomes adds the rows of the errors that the verbs of a package meet. The first row that matches
// an error counts.
func (a *App) Outcomes(rows []ErrorRow) { a.rows = append(a.rows, rows...) }

// Run runs one command line and returns the exit code.
func (a *App) Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	cmd, err := root, checkEmpty(args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil || wasPrinted(err) {
		return a.Exit
	}
	// an invalid flag ends the parsing before --json is read
	a.Flags.JSON = a.Flags.JSON || slices.Contains(args, "--json")
	if !a.ran {
		err = usageError(cmd, err)
	}
	return a.complain(addUsage(cmd, err))
}

// addUsage adds the usage of cmd to a usage failure.
func addUsage(cmd *cobra.Command, err error) error {
	if f, ok := errors.AsType[*Failure](err); ok && f.Code == ExitUsage && f.Next == seeHelp {
		f.Next = "usage: " + cmd.UseLine() + "; --help says more"
		if cmd.HasSubCommands() {
			f.Next = "usage: " + cmd.CommandPath() + " VERB; --help lists them"
		}
	}
	return err
}

// Group returns a command that only holds others.
func Group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: GroupHelp}
	Add(g, verbs...)
	return g
}

// Words that stand for a verb or a flag. The help does not show them.
var (
	otherVerbs = map[string]string{"list": "ls", "remove": "rm", "show": "get"}
	otherFlags = map[string]string{
		"idempotency-key": "key", "key-file": "key", "out-dir": "out",
		"from-seq": "from", "from-batch": "from",
	}
)

// Add adds verbs to a command. A verb without Args takes no arguments.
func Add(to *cobra.Command, verbs ...*cobra.Command) {
	for _, v := range verbs {
		if other := otherVerbs[v.Name()]; other != "" {
			v.Aliases = append(v.Aliases, other)
		}
		for name, other := range otherFlags {
			if f := v.Flags(); f.Lookup(name) != nil && f.Lookup(other) == nil {
				rename(f, other, name)
			}
		}
		if v.Args == nil {
			v.Args = Exactly(0, "no arguments")
		}
	}
	to.AddCommand(verbs...)
}

// rename lets other stand for the flag name.
func rename(flags *pflag.FlagSet, other, name string) {
	was := flags.GetNormalizeFunc()
	flags.SetNormalizeFunc(func(f *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == other {
			given = name
		}
		return was(f, given)
	})
}

// GroupHelp prints the help of a group. It returns a usage failure for an unknown verb, and for a
// missing verb with --json.
func GroupHelp(cmd *cobra.Command, args []string) error {
	if program, _ := cmd.Flags().GetBool("json"); program && len(args) == 0 {
		return Usage("%s --json: want a verb", cmd.CommandPath())
	}
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2 // cobra sets it only where it parses arguments itself
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return Usage("%s has no verb %q%s", cmd.CommandPath(), args[0], hint)
}

// HelpCmd is the help command of cobra, but it also prints the pages of the manual, and returns a
// usage failure for an unknown verb.
func HelpCmd() *cobra.Command {
	var topics strings.Builder
	var names []string
	for _, t := range manual.Topics() {
		fmt.Fprintf(&topics, "  %-22s %s\n", t.Name, t.About)
		names = append(names, t.Name)
	}
	return &cobra.Command{
		Use:   "help [TOPIC | VERB …]",
		Short: "Show a page of the manual, or the help of a command",
		Long: `Show a page of the manual as Markdown, or the help of a command as --help does. The
console of a node shows the same pages at /console/manual.

Topics:
` + strings.TrimRight(topics.String(), "\n"),
		Example: `  ronbox help money
  ronbox help db restore`,
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if page, ok := manual.Page(args[0]); ok {
					_, err := cmd.OutOrStdout().Write(page)
					return err
				}
			}
			verb, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) == 0 {
				return verb.Help()
			}
			near := ""
			if len(args) == 1 && len(cmd.Root().SuggestionsFor(args[0])) == 0 {
				near = unit.Nearest(args[0], names)
			}
			if near != "" {
				return Usage("there is no command and no topic %q; did you mean %s?", args[0], near)
			}
			return errors.Join(err, GroupHelp(verb, rest))
		},
	}
}

// RunE is the function that runs a verb.
type RunE = func(cmd *cobra.Command, args []string) error

// Verb returns the RunE of a verb that Ctrl-C cancels. If the verb is blocked in a system call,
// such as opening a pipe without a writer, a second Ctrl-C ends the process.
func (a *App) Verb(run func(ctx context.Context, args []string) error) RunE {
	return a.verb(func(ctx context.Context, args []string) error {
		if a.Flags.PrintCurl {
			return NoRequest()
		}
		return run(ctx, args)
	})
}

// verb is Verb without the check of --print-curl.
func (a *App) verb(run func(ctx context.Context, args []string) error) RunE {
	return func(cmd *cobra.Command, args []string) error {
		a.ran = true
		ctx, stop := signal.NotifyContext(cmd.Context(), endings()...)
		defer stop()
		//rawchan: the verb is over or the process ends
		defer context.AfterFunc(ctx, func() { time.AfterFunc(SameSignal, stop) })()
		a.Stdin = interruptible(ctx, a.Stdin)
		err := run(ctx, args)
		if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil {
			return a.interrupted(err)
		}
		return err
	}
}

// interrupted returns the failure of a verb that Ctrl-C ended. It keeps the advice of an error
// with an unknown outcome.
func (a *App) interrupted(err error) error {
	f := Fail(ExitInterrupted, "interrupted", "", "interrupted")
	if was, ok := errors.AsType[*Failure](err); ok && was.Unsettled {
		f.Next, f.Details = Classify(was, a.rows...).Next, was.Details
	}
	return f
}

// endings returns the signals that end a verb. One whose parent ignores SIGHUP, such as nohup,
// outlives its terminal.
func endings() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// AddFlags adds the global flags to root.
func (a *App) AddFlags(root *cobra.Command) {
	usage := strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 80 ")
	root.SetUsageTemplate(strings.ReplaceAll(usage, "gt (len .Aliases) 0", "false"))
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	f := root.PersistentFlags()
	f.StringVar(&a.Flags.Config, "config", "", "config `file` (default ronbox.toml in the data directory)")
	f.StringVar(
		&a.Flags.DataDir,
		"data-dir",
		"",
		"the node's data `directory` (default $RONBOX_NODE__DATA_DIR, else /var/lib/ronbox)",
	)
	f.StringVar(
		&a.Flags.Socket,
		"socket",
		"",
		"`path` of the node's admin socket (default admin.sock in the data directory)",
	)
	f.StringVar(
		&a.Flags.URL,
		"url",
		"",
		"the node's `URL`, or those of the members of a cluster with commas between, instead of its socket "+
			"(default $RONBOX_URL)",
	)
	f.StringVar(
		&a.Flags.CAFile,
		"ca-file",
		"",
		"`file` of PEM certificates to trust for an https URL (default the system's)",
	)
	f.StringVar(&a.Flags.TokenFile, "token-file", "", "`file` with the token to send")
	f.DurationVar(&a.Flags.Timeout, "timeout", 0, "`TIME` limit of one request (default 30s)")
	f.BoolVar(&a.Flags.JSON, "json", false, "print one JSON document, or one per line for streams")
	f.BoolVarP(&a.Flags.Quiet, "quiet", "q", false, "print only errors and the output of --json")
	f.BoolVar(&a.Flags.PrintCurl, "print-curl", false, "print the first request as a curl command, and send nothing")
	f.BoolVarP(&a.Flags.Yes, "yes", "y", false, "answer yes to every question")
	root.MarkFlagsMutuallyExclusive("socket", "url")
}

// Confirm asks before something is replaced. With --yes it does not ask; otherwise a person at a
// terminal must type target.
func (a *App) Confirm(what, target string) error {
	return a.ask(what, what+"\nType "+target+" to confirm: ", target)
}

// Agree asks whether to do something in view of a fact. With --yes it does not ask; otherwise a
// person at a terminal must answer y or yes.
func (a *App) Agree(fact, do string) error {
	return a.ask(fact, fact+"; "+do+"? [y/N] ", "y", "yes")
}

// ask asks a question and returns an error unless the answer is one of want. It names what in a
// refusal to go on without a terminal.
func (a *App) ask(what, question string, want ...string) error {
	if a.Flags.Yes || a.Flags.PrintCurl {
		return nil
	}
	if !a.AtTerminal() {
		return Fail(ExitUsage, "confirm", "add --yes to confirm", "%s: needs --yes", what)
	}
	a.clearLine()
	fmt.Fprint(a.Stderr, question)
	line, err := bufio.NewReader(io.LimitReader(a.Stdin, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if !slices.Contains(want, strings.TrimSpace(line)) {
		return Fail(ExitFailed, "not_confirmed", "", "not confirmed")
	}
	return nil
}

// AtTerminal reports whether a person can be asked.
func (a *App) AtTerminal() bool { return IsTerminal(a.Stdin) && IsTerminal(a.Stderr) }

// SameSignal is the time within which a repeated signal counts as the same one: the timeout
// command of coreutils signals the child and then the process group.
const SameSignal = 250 * time.Millisecond
