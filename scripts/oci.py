# A module of scripts in python3: images as OCI archives, without docker.
"""The same content gives the same bytes: entries are sorted, times are fixed, owners are given."""
import base64, hashlib, io, json, os, platform, re, subprocess, tarfile

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Layer:
    """Files of one layer, by path."""

    def __init__(self):
        self.entries = {}

    def add(self, path, kind, data=b"", mode=0o644, target="", owner=0):
        path = path.strip("/")
        parent = os.path.dirname(path)
        if parent and parent not in self.entries:
            self.add(parent, tarfile.DIRTYPE, mode=0o755)
        self.entries[path] = (kind, data, mode, target, owner)

    def directory(self, path, mode=0o755, owner=0):
        self.add(path, tarfile.DIRTYPE, mode=mode, owner=owner)

    def file(self, path, data, mode=0o644):
        self.add(path, tarfile.REGTYPE, data if isinstance(data, bytes) else data.encode(), mode)

    def link(self, path, target):
        self.add(path, tarfile.SYMTYPE, mode=0o777, target=target)

    def copy(self, source, path=None):
        with open(source, "rb") as f:
            self.file(path or source, f.read(), 0o755 if os.access(source, os.X_OK) else 0o644)

    def program(self, path, below=()):
        """A program with the libraries it is linked to, unless a layer below has them."""
        self.copy(os.path.realpath(path), path)
        out = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", out):
            name = library.strip("/")
            if not any(name in layer.entries for layer in (self, *below)):
                self.copy(os.path.realpath(library), library)

    def tar(self):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(self.entries):
                kind, data, mode, target, owner = self.entries[path]
                info = tarfile.TarInfo(path)
                info.type, info.mode, info.linkname, info.size = kind, mode, target, len(data)
                info.uid = info.gid = owner
                tar.addfile(info, io.BytesIO(data))
        return buffer.getvalue()


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Image:
    """An image of one platform. Layers are pairs of a tar archive and its compressed form."""

    def __init__(self, name, layers, config, arch=ARCH, created="1970-01-01T00:00:00Z", by="scripts/images"):
        self.name, self.arch = name, arch
        self.blobs = {}
        diff_ids, descriptors = [], []
        for tar, packed in layers:
            diff_ids.append(sha(tar))
            descriptors.append(self.blob(packed, "application/vnd.oci.image.layer.v1.tar+gzip"))
        config = {
            "created": created, "architecture": arch, "os": "linux",
            "config": {"Env": [PATH], **config}, "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "history": [{"created": created, "created_by": by}] * len(layers),
        }
        media = "application/vnd.oci.image.manifest.v1+json"
        manifest = {
            "schemaVersion": 2, "mediaType": media,
            "config": self.blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
            "layers": descriptors,
        }
        self.manifest = json.dumps(manifest).encode()
        self.descriptor = self.blob(self.manifest, media)

    def blob(self, data, media):
        self.blobs[sha(data)] = data
        return {"mediaType": media, "digest": sha(data), "size": len(data)}

    def save(self, path):
        tag = self.name.rsplit(":", 1)[1]
        annotations = {"io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": tag}
        index = {
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{**self.descriptor, "platform": {"architecture": self.arch, "os": "linux"}, "annotations": annotations}],
        }
        layer = Layer()
        layer.file("oci-layout", '{"imageLayoutVersion":"1.0.0"}')
        layer.file("index.json", json.dumps(index))
        for digest, data in self.blobs.items():
            layer.file("blobs/" + digest.replace(":", "/"), data)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "wb") as f:
            f.write(layer.tar())
        os.rename(temporary, path)

    @classmethod
    def load(cls, path):
        image = cls.__new__(cls)
        with tarfile.open(path) as tar:
            read = lambda name: tar.extractfile(name).read()
            entry = json.loads(read("index.json"))["manifests"][0]
            image.name = entry["annotations"]["io.containerd.image.name"]
            image.blobs = {"sha256:" + os.path.basename(m.name): read(m.name) for m in tar if m.name.startswith("blobs/sha256/")}
        image.manifest = image.blobs[entry["digest"]]
        return image

    def push(self, registry, credentials):
        import urllib.error, urllib.parse, urllib.request  # takes longer than all the rest when there is nothing to do

        repository, tag = self.name.split("/", 1)[1].rsplit(":", 1)
        url = f"http://{registry}/v2/{repository}"

        def origin(url):
            parts = urllib.parse.urlsplit(url)
            try:
                usual = {"http": 80, "https": 443}[parts.scheme]
                return parts.scheme, parts.hostname, parts.port or usual
            except (KeyError, ValueError):
                raise urllib.error.URLError(f"the registry names a location that is no HTTP URL: {url}") from None

        def call(method, target, data=None, kind="application/octet-stream"):
            request = urllib.request.Request(target, data=data, method=method, headers={"Content-Type": kind})
            if origin(target) == origin(url) and credentials:
                # Neither redirects nor locations elsewhere get them.
                request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(credentials.encode()).decode())
            return urllib.request.urlopen(request, timeout=30)

        for digest, data in self.blobs.items():
            try:
                call("HEAD", f"{url}/blobs/{digest}")
                continue
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
            begun = call("POST", f"{url}/blobs/uploads/", b"")
            location = begun.headers["Location"]
            if not location:
                raise urllib.error.URLError("the registry names no location for an upload")
            location = urllib.parse.urljoin(begun.url, location)
            separator = "&" if "?" in location else "?"
            call("PUT", f"{location}{separator}digest={digest}", data)
        call("PUT", f"{url}/manifests/{tag}", self.manifest, "application/vnd.oci.image.manifest.v1+json")
