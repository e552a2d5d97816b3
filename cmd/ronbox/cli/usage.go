package cli

import (
	"errors"
	"math"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ronbox/appliance/unit"
)

// flagError converts an error of the flag parser to a usage failure.
func flagError(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if arg := "-" + e.GetSpecifiedShortnames(); negativeNumber(arg) {
			return Usage("%q is not a flag, and negative numbers are not allowed here", arg)
		}
		if near := unit.Nearest(e.GetSpecifiedName(), shownFlags(cmd)); e.GetSpecifiedShortnames() == "" && near != "" {
			return Usage("unknown flag --%s; did you mean --%s?", e.GetSpecifiedName(), near)
		}
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		name, value := e.GetFlag().Name, e.GetValue()
		switch e.GetFlag().Value.Type() {
		case "int", "int64", "uint64":
			return Usage("--%s %q: want a whole number, not below 0 and not too large", name, value)
		case "duration":
			return Usage("--%s %q: want a time such as 90s, 15m or 24h", name, value)
		case "bool":
			return Usage("--%s %q: want true or false, or no value for true", name, value)
		}
	}
	return Usage("%w", err)
}

// shownFlags returns the names of the flags in the help of cmd.
func shownFlags(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// negativeNumber reports whether arg begins like a number below 0.
func negativeNumber(arg string) bool {
	return len(arg) > 1 && (arg[1] == '.' || arg[1] >= '0' && arg[1] <= '9')
}

// usageError converts an error that cobra returned before any verb ran to a usage failure: cobra's
// complaints about commands, required flags and flag groups have no type.
func usageError(cmd *cobra.Command, err error) error {
	if _, ok := errors.AsType[*Failure](err); ok {
		return err
	}
	var missing []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil && !f.Changed {
			value, _ := pflag.UnquoteUsage(f)
			missing = append(missing, strings.TrimSpace("--"+f.Name+" "+strings.ToUpper(value)))
		}
	})
	if len(missing) > 0 {
		return Usage("missing: %s", strings.Join(missing, ", "))
	}
	return Usage("%w", err)
}

// Between, Exactly, AtLeast and AtMost are the argument rules of cobra with a usage error that
// names the arguments.
func Between(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if most == 0 && len(args) > 0 {
			return Usage("unexpected argument %q: want %s", args[0], what)
		}
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

// checkEmpty returns a usage failure for an empty argument, and for a flag with an empty value: an
// unset variable of a script would silently remove a restriction, a check or a token. Only --reason
// may be empty.
func checkEmpty(args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil // a shell asks for completions
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
			return Usage("%s has no value: omit the flag, or give it a value", name)
		}
		if arg == "" && name != "--reason" {
			return Fail(ExitUsage, "usage", "give it a value, or leave it out",
				"an argument is empty: is a variable of the shell not set?")
		}
	}
	return nil
}
