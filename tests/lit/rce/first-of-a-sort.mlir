// RUN: %exla-opt %s --passes=rce,normalise | filecheck %s

// TensorFlow writes top_k as a stable sort that moves the places along, of which the first few are read.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-NOT: sort
// CHECK: %[[VALUES:.*]], %[[PLACES:.*]] = chlo.top_k(%{{.*}}, k = 3) : tensor<4x37xf32> -> (tensor<4x3xf32>, tensor<4x3xi32>)
// CHECK: %[[WIDE:.*]] = stablehlo.convert %[[PLACES]] : (tensor<4x3xi32>) -> tensor<4x3xi64>
// CHECK: %[[BEST:.*]], %{{.*}} = chlo.top_k(%{{.*}}, k = 2) : tensor<37xui8> -> (tensor<2xui8>, tensor<2xi32>)
// CHECK: return %[[VALUES]], %[[WIDE]], %[[BEST]]

func.func @main(%x: tensor<4x37xf32>, %n: tensor<37xui8>) -> (tensor<4x3xf32>, tensor<4x3xi64>, tensor<2xui8>) {
  %places = stablehlo.iota dim = 1 : tensor<4x37xi64>
  %0:2 = "stablehlo.sort"(%x, %places) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i64>, %d: tensor<i64>):
    %before = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<4x37xf32>, tensor<4x37xi64>) -> (tensor<4x37xf32>, tensor<4x37xi64>)
  %1 = stablehlo.slice %0#0 [0:4, 0:3] : (tensor<4x37xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.slice %0#1 [0:4, 0:3] : (tensor<4x37xi64>) -> tensor<4x3xi64>
  %3 = "stablehlo.sort"(%n) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<ui8>, %b: tensor<ui8>):
    %before = stablehlo.compare GT, %a, %b, UNSIGNED : (tensor<ui8>, tensor<ui8>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<37xui8>) -> tensor<37xui8>
  %4 = stablehlo.slice %3 [0:2] : (tensor<37xui8>) -> tensor<2xui8>
  return %1, %2, %4 : tensor<4x3xf32>, tensor<4x3xi64>, tensor<2xui8>
}
