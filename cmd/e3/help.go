package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// topics are pages of help that belong to no command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "What the exit codes mean", Long: `Exit codes:

    0  done
    1  a task failed, or an error that has no code of its own
    2  a mistake in the command line or in the package file, also if that or an input is not there
    3  start --no-wait: all that is left waits for approval
   10  no repository, or one of another version
   11  busy: another process holds the workspace or collects garbage, or this process lost its lease
   12  integrity: data in the repository or a zip is damaged, missing, or lacks a required signature
   13  a right is missing: the message names it
  124  the first failure was a timeout, or e3 cancel timed out
  130  cancelled

With --json the last line on standard output is the error:
  {"type":"error","message":"…","exitCode":11}`},
		{Use: "environment", Short: "Variables that e3 reads", Long: `Environment:

  E3_REPO          the repository of commands that name none
  E3_COLOR         --color
  E3_OFFLINE       --offline of start; commands that read send no request to a shared repository either
  E3_CONCURRENCY   --concurrency of start, likewise
  E3_MEMORY, E3_RESOURCE, E3_FAIL_FAST, E3_STRICT, E3_NO_WAIT, E3_WAIT, E3_PUBLISH, E3_DURABILITY, E3_PROGRESS, E3_GRACE
  E3_EXECUTOR, E3_QUEUE, E3_EXECUTOR_ARGS, E3_EXECUTOR_RESOURCE, E3_EXECUTOR_PROGRAM
  E3_LABELS        --labels of worker, likewise E3_LEASE, E3_METRICS_ADDR, and those above that it has
  E3_KEY           the file of the key that exports are signed with
  E3_CACHE_DIR     folder in which commands run, and for cached objects of shared repositories (default: the user's cache folder)
  E3_CACHE_SIZE    greatest size of that cache (default: 20GiB)
  E3_CHECKOUTS_SIZE     greatest size, on the disk, of the copies of large folders that are kept for later commands (default: 2GiB)
  E3_CHECKOUTS_FILES    greatest number of files, folders and links in them (default: 262144)
  E3_ENVIRONMENTS_SIZE  greatest size of the environments of programs in E3_CACHE_DIR (default: 20GiB)
  E3_STATE_DIR     folder for this machine's other data about shared repositories
  E3_DEBUG         topics to log on standard error: leases, lookups, requests (to DynamoDB and S3), or all
  E3_WATCH_POLL    true: start --watch looks at the files each second, as for a network drive
  E3_PROFILE       profiles to write, as cpu:FILE, memory:FILE or trace:FILE; several with commas
  NO_COLOR         no colours, whatever its value
  FORCE_COLOR      colours also where the output is no terminal

OpenTelemetry spans of a run and its executions are sent where the standard variables ask for it:
  OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_TRACES_EXPORTER=otlp, or =console (on standard error)
  OTEL_EXPORTER_OTLP_PROTOCOL   only http/protobuf, the default
  OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT, _COMPRESSION, _CERTIFICATE, _CLIENT_CERTIFICATE, _CLIENT_KEY
  OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_SDK_DISABLED
  TRACEPARENT, TRACESTATE       the span that the run belongs to

The command line overrides the environment, and the environment the default. Commands of tasks see none
of these variables; pass_env and secrets in the package file pass others. Commands see E3_EXECUTION, the
id of their execution, and, once the task is approved, E3_STEP. A variable of pass_env that is not set is
left out; a task with a secret that is not set does not start. A variable of key_env is part of the cache
key: a start takes it from its own environment, and another value makes another result.`},
		{Use: "package-file", Short: "The keys of e3.yaml", Long: packageFileHelp},
		{Use: "datasets", Short: "How datasets are named", Long: `A dataset is named <workspace>.<name>, where the name is that of an input or of a task:

  prod.sales                     an input
  prod.clean                     the output of a task
  prod.train.model               one of several outputs of a task
  prod.train[4]                  the output of one item of a matrix
  prod.train[depth=4,lr=0.1]     the same, of two dimensions
  prod.images/2024/a.png         a file in a directory

Most shells interpret brackets: quote such names.`},
	}
}

// newHelp is "e3 help". Cobra's own prints the help of the program, with exit code 0, for a command that does not exist.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil {
				return &usageError{err}
			}
			if len(rest) > 0 && found.HasSubCommands() {
				names := commandNames(found)
				for _, sub := range found.Commands() {
					if sub.IsAdditionalHelpTopicCommand() {
						names = append(names, sub.Name())
					}
				}
				if word := rest[0]; !found.HasParent() && (packageKey(word) && peerCommands[word] == "" || strings.HasSuffix(word, ".yaml")) {
					return usagef("%q is of the package file; see: e3 help package-file", word)
				}
				return noCommand(found, rest[0], names)
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) (list []cobra.Completion, _ cobra.ShellCompDirective) {
			found, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, sub := range found.Commands() {
				if (sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand()) && strings.HasPrefix(sub.Name(), begun) {
					list = append(list, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return list, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
