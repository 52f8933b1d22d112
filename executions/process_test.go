package executions_test

var helpers = map[string]func(string) error{}
