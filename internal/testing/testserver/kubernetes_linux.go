package testserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// kubernetesPackages are what Debian calls the programs, but for the API server, which goKubeAPIServer builds.
var kubernetesPackages = []string{"etcd-server", "kubernetes-client"}

// kubernetesToken is the password of all clients.
const kubernetesToken = "secretsecret"

// A Kubernetes is a cluster: etcd, kube-apiserver, and a stand-in of ours for the controller of Jobs, the scheduler and the kubelets
// of its nodes, which executes pods as processes of this machine.
type Kubernetes struct {
	*site
	pods *podRunner
}

// NewKubernetes starts a cluster of nodes that have room for so many pods each. Containers have the variables env, beside those
// of the manifest. It needs root, for the namespaces that pods are in, and Debian's packages, which it installs where apt-get can. The API
// server is $E3_TEST_KUBE_APISERVER, or kube-apiserver on the PATH, or what go builds where $CI or $E3_TEST_INSTALL is set.
func NewKubernetes(tb TB, env []string, pods int, nodes ...string) *Kubernetes {
	tb.Helper()
	needRoot(tb, "Kubernetes")
	if err := installPackages("kubernetes", kubernetesPackages, kubernetesMissing); err != nil {
		tb.Skipf("no Kubernetes: %v (install it with: apt-get install %s)", err, strings.Join(kubernetesPackages, " "))
	}
	server, err := find("E3_TEST_KUBE_APISERVER", "kube-apiserver", goKubeAPIServer)
	if err != nil {
		tb.Skipf("no kube-apiserver: %v (set E3_TEST_INSTALL=1, which builds it for some minutes)", err)
	}
	k := &Kubernetes{}
	k.site = newSite(tb, "Kubernetes", func(s *site) error {
		k.site = s
		return k.begin(server)
	})
	client, err := k.client()
	if err != nil {
		tb.Fatalf("start Kubernetes: %v", err)
	}
	k.pods = newPodRunner(client, k.url(), env, pods, nodes)
	tb.Cleanup(k.pods.end)
	return k
}

func kubernetesMissing() error {
	for _, name := range []string{"etcd", "kubectl"} {
		if _, err := exec.LookPath(name); err != nil {
			return err
		}
	}
	return nil
}

// KubernetesInstalled tells whether its programs are there.
func KubernetesInstalled() bool {
	_, here := goKubeAPIServer.there()
	_, err := exec.LookPath(cmp.Or(os.Getenv("E3_TEST_KUBE_APISERVER"), "kube-apiserver"))
	return (here == nil || err == nil) && kubernetesMissing() == nil
}

func (k *Kubernetes) begin(server string) error {
	for _, dir := range []string{"log", "certificates"} {
		if err := os.Mkdir(k.path(dir), 0o755); err != nil {
			return err
		}
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	for name, content := range map[string]string{
		"accounts.key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"tokens":       kubernetesToken + ",e3,e3,system:masters\n",
		"url":          url,
		"config": fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "e3",
			"clusters": [{"name": "e3", "cluster": {"server": %q, "certificate-authority": %q}}],
			"users": [{"name": "e3", "user": {"token": %q}}],
			"contexts": [{"name": "e3", "context": {"cluster": "e3", "user": "e3"}}]}`, url, k.certificate(), kubernetesToken),
	} {
		if err := os.WriteFile(k.path(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	k.env = []string{"KUBECONFIG=" + k.path("config")}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	err = k.start("etcd", nil, "etcd", "--data-dir", k.path("etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", ports[1]), "--unsafe-no-fsync")
	if err != nil {
		return err
	}
	words := []string{server, "--etcd-servers=" + etcd, fmt.Sprintf("--secure-port=%d", ports[2]), "--bind-address=127.0.0.1", "--cert-dir=" + k.path("certificates"),
		"--token-auth-file=" + k.path("tokens"), "--authorization-mode=AlwaysAllow", "--service-account-issuer=https://e3",
		"--service-account-key-file=" + k.path("accounts.key"), "--service-account-signing-key-file=" + k.path("accounts.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount"}
	if err := os.WriteFile(k.path("server"), []byte(strings.Join(words, "\n")), 0o600); err != nil {
		return err
	}
	return k.startServer()
}

func (k *Kubernetes) certificate() string { return k.path("certificates", "apiserver.crt") }

// url is where the API server listens.
func (k *Kubernetes) url() string {
	url, _ := os.ReadFile(k.path("url"))
	return string(url)
}

func (k *Kubernetes) startServer() error {
	words, err := os.ReadFile(k.path("server"))
	if err == nil {
		err = k.start("kube-apiserver", nil, strings.Split(string(words), "\n")...)
	}
	if err != nil {
		return err
	}
	return k.until("kube-apiserver", func() bool {
		_, err := k.output("kubectl", "--request-timeout=2s", "get", "--raw=/readyz")
		if err == nil {
			_, err = k.output("kubectl", "--request-timeout=2s", "get", "namespace", "default")
		}
		return err == nil
	})
}

// client is a client that trusts the API server.
func (k *Kubernetes) client() (*http.Client, error) {
	certificate, err := os.ReadFile(k.certificate())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}, nil
}

// On is the cluster for a part of the test.
func (k *Kubernetes) On(tb TB) Cluster {
	part := *k.site
	part.tb = tb
	return &Kubernetes{&part, k.pods}
}

// Jobs lists the jobs that are not over.
func (k *Kubernetes) Jobs() []Job { return k.pods.jobs() }

// Crash ends a node.
func (k *Kubernetes) Crash(node string) { k.pods.crash(node) }

// Cancel is kubectl delete.
func (k *Kubernetes) Cancel(id string) {
	k.tb.Helper()
	k.Run("kubectl", "delete", "job", "--wait=false", id)
}

// StopController kills the API server.
func (k *Kubernetes) StopController() { k.stop("kube-apiserver") }

// StartController starts it again, and waits until it answers.
func (k *Kubernetes) StartController() {
	k.tb.Helper()
	if err := k.startServer(); err != nil {
		k.tb.Fatalf("start kube-apiserver again: %v", err)
	}
}

// goKubeAPIServer is a module of its own, as that of the API server names folders beside it for others.
var goKubeAPIServer = &installable{
	name:    "kube-apiserver@v" + kubernetesVersion,
	program: "kube-apiserver",
	limit:   30 * time.Minute,
	command: func(ctx context.Context, dir string) (*exec.Cmd, error) {
		if os.Getenv("CI") == "" && os.Getenv("E3_TEST_INSTALL") == "" {
			return nil, errors.New("it is not on the PATH")
		}
		goTool, err := exec.LookPath("go")
		if err != nil {
			return nil, errors.New("neither it nor go is on the PATH")
		}
		if _, err := os.Stat(dir); err == nil { // it is only asked whether it can be built before there is one
			if err := writeKubeAPIServer(dir); err != nil {
				return nil, err
			}
		}
		cmd := exec.CommandContext(ctx, goTool, "build", "-mod=mod", "-ldflags=-s -w", "-o", "kube-apiserver", ".")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOOS=", "GOARCH=", "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		return cmd, nil
	},
}

// kubernetesVersion is that of the API server, which e3 was tried with; its staging modules have v0.
const kubernetesVersion = "1.32.13"

// kubernetesStaging are the modules that the API server's module has in folders of its own.
var kubernetesStaging = strings.Fields(`api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap
	code-generator component-base component-helpers controller-manager cri-api cri-client csi-translation-lib dynamic-resource-allocation endpointslice
	externaljwt kms kube-aggregator kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission
	sample-apiserver sample-cli-plugin sample-controller`)

// writeKubeAPIServer writes a module whose program is the API server.
func writeKubeAPIServer(dir string) error {
	var mod strings.Builder
	fmt.Fprintf(&mod, "module kubeapiserver\n\ngo 1.26\n\nrequire k8s.io/kubernetes v%s\n\n", kubernetesVersion)
	for _, name := range kubernetesStaging {
		fmt.Fprintf(&mod, "replace k8s.io/%s => k8s.io/%s v0.%s\n", name, name, strings.TrimPrefix(kubernetesVersion, "1."))
	}
	const program = `package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
`
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644)
}
