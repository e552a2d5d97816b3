package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance"
)

// App is one run of the command: its streams, its flags and what the verbs share.
type App struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Now    func() time.Time
	Flags  Flags
	Build  appliance.Build
	Exit   int // exit code of a verb that returns no error
	hints  []Hint
}

// Flags are the flags of every verb.
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
}

// New is a run on these streams.
func New(stdin io.Reader, stdout, stderr io.Writer, build appliance.Build) *App {
	return &App{Stdin: stdin, Stdout: stdout, Stderr: stderr, Build: build, Now: time.Now}
}

// Advise adds the hint of a service's verbs.
func (a *App) Advise(h Hint) { a.hints = append(a.hints, h) }

// Run performs one command line and returns the exit code.
func (a *App) Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	cmd, err := root, checkEmptyFlags(args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil {
		return a.Exit
	}
	a.Flags.JSON = a.Flags.JSON || slices.Contains(args, "--json") // a wrong flag ends the parsing
	return a.complain(addUsage(cmd, usageError(err)))
}

// addUsage puts the usage of cmd into the failure of a wrong command line.
func addUsage(cmd *cobra.Command, err error) error {
	if f, ok := errors.AsType[*Failure](err); ok && f.Code == ExitUsage && f.Next == seeHelp {
		f.Next = "usage: " + cmd.UseLine() + "; --help says more"
		if cmd.HasSubCommands() {
			f.Next = "usage: " + cmd.CommandPath() + " VERB; --help lists them"
		}
	}
	return err
}

// Group is a command that only holds others.
func Group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: GroupHelp}
	Add(g, verbs...)
	return g
}

// Add adds verbs to a command. A verb takes no arguments, unless it says which.
func Add(to *cobra.Command, verbs ...*cobra.Command) {
	for _, v := range verbs {
		if v.Args == nil {
			v.Args = Exactly(0, "no arguments")
		}
	}
	to.AddCommand(verbs...)
}

// GroupHelp prints the help of a group. A verb that is not there is refused, and with --json that none is given.
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

// HelpCmd is cobra's help command, but refuses a verb that is not there.
func HelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "help [VERB …]",
		Short:   "Explain a verb",
		Long:    "Explain a verb, as --help behind it does.",
		Example: `  ronbox help db restore`,
		RunE: func(cmd *cobra.Command, args []string) error {
			verb, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) == 0 {
				return verb.Help()
			}
			return errors.Join(err, GroupHelp(verb, rest))
		},
	}
}

// negativeFlag matches the error of the flags about a number below 0.
var negativeFlag = regexp.MustCompile(`^unknown shorthand flag: '[0-9.]' in (-[0-9.].*)$`)

// invalidValue matches their error about a value of the wrong type.
var invalidValue = regexp.MustCompile(`(?s)^invalid argument (".*") for "(?:-., )?--([a-z-]+)" flag: `)

// flagError explains a wrong flag.
func flagError(cmd *cobra.Command, err error) error {
	if m := negativeFlag.FindStringSubmatch(err.Error()); m != nil {
		return Usage("%q is no flag, and no number here is below 0", m[1])
	}
	if m := invalidValue.FindStringSubmatch(err.Error()); m != nil {
		switch f := cmd.Flags().Lookup(m[2]); f.Value.Type() {
		case "int", "int64", "uint64":
			return Usage("--%s %s: want a whole number, not below 0 and not too large", m[2], m[1])
		case "duration":
			return Usage("--%s %s: want a time such as 90s, 15m or 24h", m[2], m[1])
		case "bool":
			return Usage("--%s %s: want true or false, or no value for true", m[2], m[1])
		}
	}
	return Usage("%w", err)
}

// usageError recognises cobra's own complaints, which carry no type.
func usageError(err error) error {
	for _, prefix := range []string{"unknown command", "unknown flag", "unknown shorthand", "required flag", "if any flags in the group", "at least one of the flags in the group"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return Usage("%w", err)
		}
	}
	return err
}

// RunE is the function of a verb.
type RunE = func(cmd *cobra.Command, args []string) error

// Verb makes RunE of a verb that Ctrl-C ends. Where it is blocked in a system call, as at a pipe without a writer, a second Ctrl-C ends it.
func (a *App) Verb(run func(ctx context.Context, args []string) error) RunE {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
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

// interrupted is the failure of a verb that Ctrl-C ended. It keeps what err says of an outcome that is not known.
func (a *App) interrupted(err error) error {
	f := Fail(ExitInterrupted, "interrupted", "", "interrupted")
	if was, ok := errors.AsType[*Failure](err); ok && was.Unsettled {
		f.Next, f.Details = Classify(was, a.hints...).Next, was.Details
	}
	return f
}

// Between, Exactly, AtLeast and AtMost are cobra's argument rules with a usage error that names the arguments.
func Between(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return Usage("want %s, got %d", what, len(args))
		}
		return nil
	}
}

func Exactly(n int, what string) cobra.PositionalArgs { return Between(n, n, what) }
func AtLeast(n int, what string) cobra.PositionalArgs { return Between(n, math.MaxInt, what) }
func AtMost(n int, what string) cobra.PositionalArgs  { return Between(0, n, what) }

// Require makes flags of cmd required.
func Require(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // no such flag
		}
	}
}

// AddFlags adds the flags of every verb to root.
func (a *App) AddFlags(root *cobra.Command) {
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 80 "))
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	f := root.PersistentFlags()
	f.StringVar(&a.Flags.Config, "config", "", "config `file` (default ronbox.toml in the data directory)")
	f.StringVar(&a.Flags.DataDir, "data-dir", "", "the node's data `directory` (default $RONBOX_NODE__DATA_DIR, else /var/lib/ronbox)")
	f.StringVar(&a.Flags.Socket, "socket", "", "`path` of the node's admin socket (default admin.sock in the data directory)")
	f.StringVar(&a.Flags.URL, "url", "", "the node's `URL`, instead of its socket")
	f.StringVar(&a.Flags.CAFile, "ca-file", "", "`file` of PEM certificates that an https URL is trusted by (default the system's)")
	f.StringVar(&a.Flags.TokenFile, "token-file", "", "`file` that holds the token to send")
	f.DurationVar(&a.Flags.Timeout, "timeout", 0, "longest wait for one answer of the node (default 30s)")
	f.BoolVar(&a.Flags.JSON, "json", false, "print one JSON document, or one a line for streams")
	f.BoolVarP(&a.Flags.Quiet, "quiet", "q", false, "print nothing but errors and what --json asks for")
	f.BoolVarP(&a.Flags.Yes, "yes", "y", false, "answer yes to every question")
	root.MarkFlagsMutuallyExclusive("socket", "url")
}

// checkEmptyFlags refuses a flag without a value: a script's variable that is not set would silently narrow no token, hold
// no log against its genesis and send no token. Only --reason, which is kept for people, may be empty.
func checkEmptyFlags(args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil // a shell asks what could stand there
	}
	for i, arg := range args {
		name, value, assigned := strings.Cut(arg, "=")
		if arg == "--" {
			return nil
		}
		if arg == "" && i > 0 {
			name, assigned = args[i-1], true
		}
		if assigned && value == "" && strings.HasPrefix(name, "-") && name != "--reason" {
			return Usage("%s is given nothing: leave it out, or say what is meant", name)
		}
	}
	return nil
}

// Confirm asks before something is replaced: --yes answers, else a person at the terminal has to type the target.
func (a *App) Confirm(what, target string) error {
	if a.Flags.Yes {
		return nil
	}
	if !IsTerminal(a.Stdin) || !IsTerminal(a.Stderr) {
		return Fail(ExitUsage, "confirm", "add --yes if that is meant", "%s: not without --yes", what)
	}
	fmt.Fprintf(a.Stderr, "%s\nType %s to go on: ", what, target)
	line, err := bufio.NewReader(io.LimitReader(a.Stdin, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if strings.TrimSpace(line) != target {
		return Fail(ExitFailed, "not_confirmed", "", "not confirmed")
	}
	return nil
}

// SameSignal is how long a signal counts as the one before: coreutils' timeout sends its own to the child and then to the group.
const SameSignal = 250 * time.Millisecond
