"""AWS Batch of moto, whose containers are processes of this machine, a few at a time: batchjobs.py <at a time> <arguments of moto_server>"""
import datetime, os, subprocess, sys, threading

from moto.utilities.docker_utilities import DockerModel

ROOM = threading.Semaphore(int(sys.argv[1]))


class Containers:
    """What moto uses of Docker."""

    def run(self, image, command, environment, name, **_):
        ROOM.acquire()
        try:
            return Container(command, environment)
        except BaseException:
            ROOM.release()
            raise


class Container:
    attrs = {"NetworkSettings": {"Networks": {}, "IPAddress": "127.0.0.1"}}

    def __init__(self, command, environment):
        env = {name: os.environ[name] for name in os.environ if name == "PATH" or name.startswith(("E2E_", "E3_"))}
        env |= {name: str(value) for name, value in environment.items()}
        env["E2E_JOB"] = env.get("AWS_BATCH_JOB_ID", "")
        self.process = subprocess.Popen(
            ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "--"] + command,
            env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def reload(self):
        self.status = "running" if self.process.poll() is None else "exited"

    def kill(self):
        self.process.kill()

    def logs(self, **_):
        return b""

    def wait(self):
        code = self.process.wait()
        return {"StatusCode": code if code >= 0 else 128 - code}

    def remove(self):
        self.process.wait()
        ROOM.release()


class Client:
    containers = Containers()


DockerModel.docker_client = Client()

from moto.server import main

main(sys.argv[2:])
