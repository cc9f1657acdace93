# A template for Homebrew on Linux: make release fills it.
class DeltaEngine < Formula
  desc "Run LLM agents that are directories of commands"
  homepage "@URL@"
  url "@URL@/delta-engine-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "rust" => :build
  # 2.41 or later: the files of each step, and delta undo.
  depends_on "git" => :recommended
  depends_on :linux

  conflicts_with "git-delta", because: "both install a program named delta"

  def install
    system "cargo", "build", "--release", "--locked"
    system "packaging/licenses.sh", "target/release/THIRD-PARTY"
    system "packaging/files.sh", "install", "target/release", "", prefix, "delta"
    pkgshare.install "packaging/smoke.sh"
  end

  test do
    system pkgshare/"smoke.sh", doc/"examples"
  end
end
