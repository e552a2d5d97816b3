document.documentElement.dataset.app = "plain"
